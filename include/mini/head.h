// SPDX-License-Identifier: MIT
// One head of self-attention: query, key and value projections, then scaled_dot_product_attention.
//
// Paper   Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
// Shapes  B batch, T sequence, C = n_embd, hs = head_size = d_k.
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

namespace mini {

/// Options for `Head`.  Example: `Head head(HeadOptions(128, 32).causal(true).dropout(0.1));`
struct MINI_API HeadOptions {
  HeadOptions(int64_t n_embd, int64_t head_size) : n_embd_(n_embd), head_size_(head_size) {}
  /// Width of the input, C.
  TORCH_ARG(int64_t, n_embd);
  /// Width of query, key and value, hs.
  TORCH_ARG(int64_t, head_size);
  /// Hide the keys at positions after the query's (`Causal::kLowerRight`).
  TORCH_ARG(bool, causal) = false;
  /// Probability of zeroing an attention weight while training, in [0, 1].
  TORCH_ARG(double, dropout) = 0.0;
  /// Factor on the scores; finite. Unset means 1 / sqrt(hs); 1 disables scaling.
  TORCH_ARG(std::optional<double>, scale) = std::nullopt;
  /// Seed of the initial weights. If set, the module draws them from its own generator: equal seeds
  /// give equal weights on any thread, and LibTorch's global generator is not used. If unset, they
  /// are drawn from the global generator, as `Linear` draws its weights.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// One head of self-attention.  (B, T, C) -> (B, T, hs)
///
/// query, key and value are `Linear` without bias. Their weights are drawn in that order, uniform
/// in [-1 / sqrt(C), 1 / sqrt(C)]. Dropout is active while the module is training.
/// Gradients flow to x, the projections and a floating-point mask. Half types are computed as in
/// `scaled_dot_product_attention`. The dtypes of x and the weights must be equal, except under
/// autocast, which casts both.
/// Throws c10::Error if an option is out of range or x is not (..., T, C).
class MINI_API HeadImpl : public torch::nn::Cloneable<HeadImpl> {
 public:
  explicit HeadImpl(HeadOptions options_);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// x (..., T, C) -> (..., T, hs). `mask` is as in `AttentionOptions`, for scores (..., T, T).
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask = {});
  /// The steps of `forward`: scores, scaled scores and weights (..., T, T), output (..., T, hs).
  AttentionSteps attention_steps(const at::Tensor& x, const std::optional<at::Tensor>& mask = {});

  HeadOptions options;
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())})
};
TORCH_MODULE(Head);

}  // namespace mini
