// SPDX-License-Identifier: MIT
// Multi-head self-attention: one fused projection to queries, keys and values, n_head heads, and an
// output projection.
//
// Paper   Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.
// Shapes  B batch, T sequence, C = n_embd, nh = n_head, hs = head_size = C / nh.
#pragma once

#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include "mini/attention.h"
#include "mini/export.h"
#include "mini/kv_cache.h"

namespace mini {

namespace detail {
enum class Weights : bool;  // internal: the default argument {} initialises the weights
}

/// Options for `MultiHeadAttention`.
/// Example: `MultiHeadAttention attention(MultiHeadAttentionOptions(128, 4).causal(true));`
struct MINI_API MultiHeadAttentionOptions {
  MultiHeadAttentionOptions(int64_t n_embd, int64_t n_head) : n_embd_(n_embd), n_head_(n_head) {}
  /// Width of input and output, C.
  TORCH_ARG(int64_t, n_embd);
  /// Number of heads, nh; divides C.
  TORCH_ARG(int64_t, n_head);
  /// Give both projections a bias.
  TORCH_ARG(bool, bias) = false;
  /// Hide the keys at positions after the query's (`Causal::kLowerRight`).
  TORCH_ARG(bool, causal) = false;
  /// Dropout probability, in [0, 1]. While training, dropout applies to the attention weights and
  /// to the output.
  TORCH_ARG(double, dropout) = 0.0;
  /// Factor on the scores; finite. Unset means 1 / sqrt(hs); 1 disables scaling.
  TORCH_ARG(std::optional<double>, scale) = std::nullopt;
  /// Seed of the initial weights, as in `HeadOptions`.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// Multi-head self-attention.  (B, T, C) -> (B, T, C)
///
/// c_attn (3 C, C) projects x to the queries of all heads, then their keys, then their values.
/// c_proj (C, C) projects the concatenated outputs of the heads. The result equals that of nh
/// `Head`s of size hs whose outputs are concatenated and projected by c_proj. The weight of c_attn
/// stacks the query, key and value weights; in each of these three, rows h * hs to (h + 1) * hs - 1
/// belong to head h. Both projections are initialised as in `torch::nn::Linear`, c_attn first.
///
/// Dropout is active while the module is training. Gradients flow to x, the projections and a
/// floating-point mask. Half types are computed as in `scaled_dot_product_attention`.
/// Throws c10::Error if an option is out of range or x is not (..., T, C).
class MINI_API MultiHeadAttentionImpl : public torch::nn::Cloneable<MultiHeadAttentionImpl> {
 public:
  explicit MultiHeadAttentionImpl(MultiHeadAttentionOptions options_, detail::Weights weights = {});
  void reset() override { build({}); }
  void pretty_print(std::ostream& stream) const override;

  /// x (..., T, C) -> (..., T, C). `mask` is as in `AttentionOptions`, for scores (..., nh, T, Tk).
  ///
  /// Without a cache, Tk = T. With a cache, x is (B, T, C) and continues the cached sequence: the
  /// keys and values of x are appended to the cache, and the queries of x attend to all
  /// Tk = length() keys. With `causal`, several calls with one cache compute what a single call
  /// with the concatenated inputs computes.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask = {},
                     KvCache* cache = nullptr);
  /// The steps of the heads, before c_proj: scores, scaled scores and weights (..., nh, T, T),
  /// output (..., nh, T, hs).
  AttentionSteps attention_steps(const at::Tensor& x, const std::optional<at::Tensor>& mask = {});

  /// The queries, keys and values of all heads.
  struct Projections {
    at::Tensor q, k, v;  ///< (..., nh, T, hs)
  };
  /// Queries, keys and values of x (..., T, C): three views of c_attn's output (..., T, 3 C).
  Projections project(const at::Tensor& x);

  MultiHeadAttentionOptions options;
  torch::nn::Linear c_attn{nullptr}, c_proj{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())},
                           {2, torch::nn::AnyValue(static_cast<KvCache*>(nullptr))})

 private:
  void build(detail::Weights weights);
};
TORCH_MODULE(MultiHeadAttention);

}  // namespace mini
