// SPDX-License-Identifier: MIT
// Inputs, paths and results of attention that its tests share.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mini/attention.h"
#include "support/support.h"

namespace mini::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

/// A function that returns the output of attention. Every path has the same contract.
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

/// d sum(output * upstream) / d inputs. Undefined for inputs that do not contribute to the output.
inline std::vector<at::Tensor> gradients(const at::Tensor& output, const at::Tensor& upstream,
                                         std::vector<at::Tensor> inputs,
                                         bool create_graph = false) {
  return torch::autograd::grad({output}, inputs, {upstream}, /*retain_graph=*/true, create_graph,
                               /*allow_unused=*/true);
}

inline at::Tensor attention(const Inputs& in, const AttentionOptions& options = {}) {
  return mini::scaled_dot_product_attention(in.q, in.k, in.v, options);
}

/// LibTorch's own attention.
inline at::Tensor libtorch_attention(const Inputs& in, const std::optional<at::Tensor>& mask = {},
                                     bool is_causal = false, std::optional<double> scale = {}) {
  return at::scaled_dot_product_attention(in.q, in.k, in.v, mask, 0.0, is_causal, scale);
}

/// Output and gradients, flattened into one vector.
inline at::Tensor all_results(const Inputs& inputs, const AttentionOptions& options) {
  const Inputs in = inputs.requires_grad();
  const at::Tensor output = attention(in, options);
  const at::Tensor upstream = at::ones_like(output).cumsum(-1);
  std::vector<at::Tensor> flat{output.detach().flatten()};
  for (const at::Tensor& gradient : gradients(output, upstream, {in.q, in.k, in.v})) {
    flat.push_back(gradient.flatten());
  }
  return at::cat(flat);
}

/// Compares float32 results with an expectation of nine digits.
inline AllClose CloseTo(const at::Tensor& expected) { return {expected, 1e-6, 1e-6}; }

inline at::Tensor column(std::vector<double> values) {
  return torch::tensor(values, at::kFloat).unsqueeze(-1);
}

/// Three tokens. Their third row of weights is e^0, e^0, e^sqrt(1/2), normalised.
inline Inputs three_tokens() {
  const at::Tensor x = torch::tensor({{1.f, 0.f}, {0.f, 1.f}, {1.f, 1.f}});
  return {x, x, torch::tensor({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}})};
}

inline at::Tensor bools(std::vector<int64_t> shape, std::vector<int> values) {
  return torch::tensor(values).reshape(shape).to(at::kBool);
}

}  // namespace mini::test
