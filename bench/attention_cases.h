// SPDX-License-Identifier: MIT
// What bench_attention measures: shapes, the fused attention, and its peers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace mini::app {

struct Shape {
  int64_t batch, heads, tq, tk, head_size;
  bool causal;

  std::string name() const;
  /// Multiplications and additions of the two products in a forward pass, without hidden positions.
  double operations() const;
};

extern const std::vector<Shape> kShapes;

/// q (B, nh, Tq, hs), k and v (B, nh, Tk, hs)
using Tensors = std::vector<at::Tensor>;
using Attention = std::function<at::Tensor(const Tensors& qkv)>;

/// One implementation of attention.
struct Implementation {
  std::string name;
  Attention attention;
};

/// mini::scaled_dot_product_attention for this shape.
Implementation ours(const Shape& shape);

/// LibTorch's attention on four dimensions and, if there is one head, on three. For shapes of
/// moderate size, the composite formula too.
std::vector<Implementation> peers_of(const Shape& shape);

/// Calls the attention once. If `upstream` is defined, also calls backward with this gradient and
/// returns the gradients of q, k and v before the output.
Tensors call(const Attention& attention, const Tensors& qkv, const at::Tensor& upstream);

/// Compares the first head of each result with float64. Throws c10::Error if an error exceeds what
/// rounding explains.
void verify(const Implementation& implementation, const Shape& shape, const Tensors& qkv,
            const at::Tensor& upstream);

}  // namespace mini::app
