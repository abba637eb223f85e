// SPDX-License-Identifier: MIT
// Inputs and ways into attention that its tests share.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mini/attention.h"
#include "support/support.h"

namespace mini::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct Inputs {
  at::Tensor q, k, v;

  Inputs requires_grad() const {
    return {q.detach().clone().requires_grad_(), k.detach().clone().requires_grad_(),
            v.detach().clone().requires_grad_()};
  }
  Inputs to(at::ScalarType dtype) const { return {q.to(dtype), k.to(dtype), v.to(dtype)}; }
};

/// q (leading..., Tq, d_k), k (leading..., Tk, d_k), v (leading..., Tk, d_v), from N(0, 1).
inline Inputs random_inputs(std::vector<int64_t> leading, int64_t Tq, int64_t Tk, int64_t d_k,
                            int64_t d_v, at::ScalarType dtype = at::kFloat, uint64_t seed = 1) {
  torch::manual_seed(seed);
  const auto draw = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> shape = leading;
    shape.push_back(rows);
    shape.push_back(columns);
    return at::randn(shape, at::kDouble).to(dtype);
  };
  return {draw(Tq, d_k), draw(Tk, d_k), draw(Tk, d_v)};
}

/// A way to ask for attention's output; every one has the same contract.
struct Path {
  std::string name;
  std::function<at::Tensor(const Inputs&, const AttentionOptions&)> output;
};

inline const std::vector<Path>& paths() {
  static const std::vector<Path> all = {
      {"scaled_dot_product_attention",
       [](const Inputs& in, const AttentionOptions& options) {
         return mini::scaled_dot_product_attention(in.q, in.k, in.v, options);
       }},
      {"attention_steps",
       [](const Inputs& in, const AttentionOptions& options) {
         return attention_steps(in.q, in.k, in.v, options).output;
       }},
  };
  return all;
}

/// d sum(output * upstream) / d inputs; tensors that take no gradient give undefined ones.
inline std::vector<at::Tensor> gradients(const at::Tensor& output, const at::Tensor& upstream,
                                         std::vector<at::Tensor> inputs,
                                         bool create_graph = false) {
  return torch::autograd::grad({output}, inputs, {upstream}, /*retain_graph=*/true, create_graph,
                               /*allow_unused=*/true);
}

inline at::Tensor bools(std::vector<int64_t> shape, std::vector<int> values) {
  return torch::tensor(values).reshape(shape).to(at::kBool);
}

}  // namespace mini::test
