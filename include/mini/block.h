// SPDX-License-Identifier: MIT
// A transformer block and its parts: layer norm, MLP, and the block that adds attention and MLP.
//
// Papers  Vaswani et al. 2017, "Attention Is All You Need"; Radford et al. 2019, "Language Models
//         are Unsupervised Multitask Learners", section 2.3: the norm before each part (pre-norm).
// Shapes  B batch, T sequence, C = n_embd, nh = n_head.
#pragma once

#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "mini/export.h"
#include "mini/kv_cache.h"
#include "mini/multi_head_attention.h"

namespace mini {

/// Options for `LayerNorm`.  Example: `LayerNorm norm(LayerNormOptions(128).bias(true));`
struct MINI_API LayerNormOptions {
  explicit LayerNormOptions(int64_t n_embd) : n_embd_(n_embd) {}
  /// Width of the rows, C.
  TORCH_ARG(int64_t, n_embd);
  /// Add a learned bias. `torch::nn::LayerNorm` cannot leave it out.
  TORCH_ARG(bool, bias) = false;
};

/// weight * (x - mean) / sqrt(variance + 1e-5) + bias, row by row.  (..., T, C) -> (..., T, C)
///
/// Initially weight is 1 and bias is 0. Gradients flow to x, weight and bias.
/// Throws c10::Error if n_embd is not above 0 or x is not (..., T, C).
/// Source: Ba et al. 2016, "Layer Normalization".
class MINI_API LayerNormImpl : public torch::nn::Cloneable<LayerNormImpl> {
 public:
  explicit LayerNormImpl(LayerNormOptions options_);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor weight;  ///< (C)
  at::Tensor bias;    ///< (C), undefined without `LayerNormOptions::bias`
};
TORCH_MODULE(LayerNorm);

/// Options for `Mlp`.  Example: `Mlp mlp(MlpOptions(128).dropout(0.1));`
struct MINI_API MlpOptions {
  explicit MlpOptions(int64_t n_embd) : n_embd_(n_embd) {}
  /// Width of input and output, C. The hidden layer has width 4 C.
  TORCH_ARG(int64_t, n_embd);
  /// Give both layers a bias.
  TORCH_ARG(bool, bias) = false;
  /// Probability of zeroing an element of the output while training, in [0, 1].
  TORCH_ARG(double, dropout) = 0.0;
  /// "none": exact GELU, x Phi(x). "tanh": GPT-2's approximation of GELU.
  TORCH_ARG(std::string, gelu_approximate) = "none";
  /// Seed of the initial weights, as in `HeadOptions`.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// c_proj(gelu(c_fc(x))).  (..., T, C) -> (..., T, C)
///
/// c_fc is (4 C, C), c_proj (C, 4 C). Both are initialised as in `torch::nn::Linear`, c_fc first.
/// Dropout is active while the module is training. Gradients flow to x and both layers.
/// Throws c10::Error if an option is out of range or x is not (..., T, C).
/// Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units (GELUs)".
class MINI_API MlpImpl : public torch::nn::Cloneable<MlpImpl> {
 public:
  explicit MlpImpl(MlpOptions options_, detail::Weights weights = {});
  void reset() override { build({}); }
  void pretty_print(std::ostream& stream) const override;

  at::Tensor forward(const at::Tensor& x);

  MlpOptions options;
  torch::nn::Linear c_fc{nullptr}, c_proj{nullptr};

 private:
  void build(detail::Weights weights);
};
TORCH_MODULE(Mlp);

/// Options for `Block`.  Example: `Block block(BlockOptions(128, 4).causal(true));`
struct MINI_API BlockOptions {
  BlockOptions(int64_t n_embd, int64_t n_head) : n_embd_(n_embd), n_head_(n_head) {}
  /// Width of input and output, C.
  TORCH_ARG(int64_t, n_embd);
  /// Number of heads, nh; divides C.
  TORCH_ARG(int64_t, n_head);
  /// Give layer norms and linear layers a bias.
  TORCH_ARG(bool, bias) = false;
  /// Hide the keys at positions after the query's (`Causal::kLowerRight`).
  TORCH_ARG(bool, causal) = false;
  /// Dropout probability, in [0, 1]. While training, dropout applies to the attention weights and
  /// to the outputs of attention and MLP.
  TORCH_ARG(double, dropout) = 0.0;
  /// Factor on the scores, as in `MultiHeadAttentionOptions`.
  TORCH_ARG(std::optional<double>, scale) = std::nullopt;
  /// "none" or "tanh", as in `MlpOptions`.
  TORCH_ARG(std::string, gelu_approximate) = "none";
  /// Seed of the initial weights, as in `HeadOptions`. The seeds of attention and MLP are drawn
  /// from a generator with this seed.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// One layer of a transformer: x += attn(ln_1(x)), then x += mlp(ln_2(x)).  (B, T, C) -> (B, T, C)
///
/// Mask, cache, dropout, gradients and half types are as in `MultiHeadAttention`.
/// Throws c10::Error if an option is out of range or x is not (..., T, C).
class MINI_API BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  explicit BlockImpl(BlockOptions options_, detail::Weights weights = {});
  void reset() override { build({}); }
  void pretty_print(std::ostream& stream) const override;

  /// x (..., T, C) -> (..., T, C). Mask and cache are as in `MultiHeadAttention`.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask = {},
                     KvCache* cache = nullptr);
  /// The steps of this block's attention. x (..., T, C) is the input of the block.
  AttentionSteps attention_steps(const at::Tensor& x, const std::optional<at::Tensor>& mask = {});

  BlockOptions options;
  LayerNorm ln_1{nullptr};
  MultiHeadAttention attn{nullptr};
  LayerNorm ln_2{nullptr};
  Mlp mlp{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())},
                           {2, torch::nn::AnyValue(static_cast<KvCache*>(nullptr))})

 private:
  void build(detail::Weights weights);
};
TORCH_MODULE(Block);

}  // namespace mini
