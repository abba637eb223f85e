// SPDX-License-Identifier: MIT
// Several heads of self-attention at once, between one projection in and one out.
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

/// Options for `MultiHeadAttention`.
/// Example: `MultiHeadAttention attention(MultiHeadAttentionOptions(128, 4).causal(true));`
struct MINI_API MultiHeadAttentionOptions {
  MultiHeadAttentionOptions(int64_t n_embd, int64_t n_head);
  /// Width of input and output, C.
  TORCH_ARG(int64_t, n_embd);
  /// Number of heads, nh; divides C.
  TORCH_ARG(int64_t, n_head);
  /// Give both projections a bias.
  TORCH_ARG(bool, bias) = false;
  /// Hide every key to the right of its query (`Causal::kLowerRight`).
  TORCH_ARG(bool, causal) = false;
  /// Probability of zeroing an attention weight, and of zeroing a number of the output, while
  /// training, in [0, 1].
  TORCH_ARG(double, dropout) = 0.0;
  /// Factor on the scores; unset is 1 / sqrt(hs), 1 removes the division.
  TORCH_ARG(std::optional<double>, scale) = std::nullopt;
  /// Seed of the initial weights, as in `HeadOptions`.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// Self-attention by n_head heads.  (B, T, C) -> (B, T, C)
///
/// c_attn (3 C, C) projects x to the queries of all heads, then their keys, then their values;
/// c_proj (C, C) mixes what the heads give. It computes what n_head `Head`s of size hs would, side
/// by side, with rows h * hs and on of each third of c_attn's weight for head h. Both are drawn as
/// `Linear` draws its own, c_attn first.
///
/// Gradients flow to x, the projections and a floating mask. Half types are computed as
/// `scaled_dot_product_attention` does. Dropout acts while the module is training.
/// Throws c10::Error for options out of range, and for an x that is not (..., T, C).
class MINI_API MultiHeadAttentionImpl : public torch::nn::Cloneable<MultiHeadAttentionImpl> {
 public:
  explicit MultiHeadAttentionImpl(MultiHeadAttentionOptions options_);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// x (..., T, C) -> (..., T, C). The mask is that of `AttentionOptions`, over (..., nh, T, Tk).
  ///
  /// With a cache x is (B, T, C) and continues what the cache holds: its keys and values are
  /// appended, and its queries attend to all Tk = length() of them; otherwise Tk = T. Where
  /// `causal`, calls with one cache give what one call with all of x would.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask = {},
                     KvCache* cache = nullptr);
  /// What the heads compute on the way: scores, scaled scores and weights (..., nh, T, T), output
  /// (..., nh, T, hs), before c_proj.
  AttentionSteps attention_steps(const at::Tensor& x, const std::optional<at::Tensor>& mask = {});

  /// What the heads attend with.
  struct Projections {
    at::Tensor q, k, v;  ///< (..., nh, T, hs)
  };
  /// Queries, keys and values of x (..., T, C), as views of one packed product.
  Projections project(const at::Tensor& x);

  MultiHeadAttentionOptions options;
  torch::nn::Linear c_attn{nullptr}, c_proj{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())},
                           {2, torch::nn::AnyValue(static_cast<KvCache*>(nullptr))})

 private:
  AttentionOptions attention_options(const std::optional<at::Tensor>& mask) const;
};
TORCH_MODULE(MultiHeadAttention);

}  // namespace mini
