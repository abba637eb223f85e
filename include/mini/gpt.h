// SPDX-License-Identifier: MIT
// A GPT: token and position embeddings, a stack of blocks, and a head tied to the token embedding.
//
// Paper   Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).
// Shapes  B batch, T sequence, C = n_embd, V = vocab_size, nh = n_head, hs = head_size = C / nh.
#pragma once

#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mini/attention.h"
#include "mini/block.h"
#include "mini/export.h"
#include "mini/kv_cache.h"
#include "mini/multi_head_attention.h"

namespace mini {

/// Options for `GPT`.  Example: `GPT model(GPTOptions(65).block_size(256).seed(1337));`
struct MINI_API GPTOptions {
  explicit GPTOptions(int64_t vocab_size) : vocab_size_(vocab_size) {}
  /// Number of token ids, V.
  TORCH_ARG(int64_t, vocab_size);
  /// Maximum length of a sequence; the number of learned positions.
  TORCH_ARG(int64_t, block_size) = 64;
  /// Number of blocks.
  TORCH_ARG(int64_t, n_layer) = 4;
  /// Number of heads of each block, nh; divides C.
  TORCH_ARG(int64_t, n_head) = 4;
  /// Width of embeddings and blocks, C.
  TORCH_ARG(int64_t, n_embd) = 128;
  /// Dropout probability, in [0, 1]. While training, dropout applies to the embeddings, the
  /// attention weights and the outputs of attention and MLP.
  TORCH_ARG(double, dropout) = 0.0;
  /// Give layer norms and linear layers a bias, as GPT-2 does.
  TORCH_ARG(bool, bias) = false;
  /// Factor on the scores of every block, as in `MultiHeadAttentionOptions`. Unset means
  /// 1 / sqrt(hs); 1 disables scaling.
  TORCH_ARG(std::optional<double>, scale) = std::nullopt;
  /// "none" or "tanh", as in `MlpOptions`. GPT-2 uses "tanh".
  TORCH_ARG(std::string, gelu_approximate) = "none";
  /// Seed of the initial weights, as in `HeadOptions`.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// The layers of a `GPT` under nanoGPT's names. It has no forward: `GPT` runs the layers.
class MINI_API TransformerImpl : public torch::nn::Cloneable<TransformerImpl> {
 public:
  explicit TransformerImpl(GPTOptions options_, detail::Weights weights = {});
  void reset() override { build({}); }
  void pretty_print(std::ostream& stream) const override;
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  GPTOptions options;
  torch::nn::Embedding wte{nullptr};  ///< token embedding, (V, C)
  torch::nn::Embedding wpe{nullptr};  ///< position embedding, (block_size, C)
  torch::nn::ModuleList h{nullptr};   ///< n_layer `Block`s
  LayerNorm ln_f{nullptr};

 private:
  void build(detail::Weights weights);
};
TORCH_MODULE(Transformer);

/// A decoder-only transformer: for each position, the logits of the next token.
///
/// The head is tied: its weight is the token embedding's. The weight is registered once, as
/// `transformer.wte.weight`; `kGPTAliases` maps nanoGPT's second name, `lm_head.weight`, to it.
///
/// Weights are initialised as in GPT-2. Matrices are normal with mean 0 and standard deviation
/// 0.02, or 0.02 / sqrt(2 n_layer) for each c_proj, whose output is added to the residual stream.
/// They are drawn in the order of `parameters()`. Biases are 0, the weights of layer norms 1. If a
/// seed is set, the weights are the same as those drawn from the global generator after
/// `torch::manual_seed(seed)`.
///
/// Every method takes token ids idx (B, T), int64, with T <= block_size. Gradients flow to the
/// weights. Dropout is active while the module is training.
/// Throws c10::Error if an option is out of range, or if idx has another shape or dtype, is longer
/// than block_size or holds an id outside [0, V). Ids are checked on the CPU only.
class MINI_API GPTImpl : public torch::nn::Cloneable<GPTImpl> {
 public:
  explicit GPTImpl(GPTOptions options_, detail::Weights weights = {});
  void reset() override { build({}); }
  void pretty_print(std::ostream& stream) const override;

  /// Logits (B, T, V).
  ///
  /// With caches, one per block, idx continues the cached sequences: its keys and values are
  /// appended to the caches. The caches must have equal length, and length() + T must not exceed
  /// block_size. Caches store no gradients: call this under a NoGradGuard.
  at::Tensor forward(const at::Tensor& idx, std::vector<KvCache>* caches = nullptr);
  /// Logits (B, V) of the last position only. T must be above 0. Caches are as in `forward`.
  at::Tensor last_logits(const at::Tensor& idx, std::vector<KvCache>* caches = nullptr);
  /// Cross-entropy -ln softmax(logits)[target], averaged over all positions: a scalar, in nats.
  /// targets (B, T) has the shape of idx, with B and T above 0. For half types, the loss is
  /// computed in float32.
  at::Tensor loss(const at::Tensor& idx, const at::Tensor& targets);
  /// Calls fn(layer, steps) for each block in order, with the steps of the block's attention on
  /// idx: scores, scaled scores and weights (B, nh, T, T), output (B, nh, T, hs). Under a
  /// NoGradGuard, the steps of a layer are freed before those of the next layer are computed,
  /// unless `fn` keeps them.
  void for_each_attention(
      const at::Tensor& idx,
      const std::function<void(int64_t layer, const AttentionSteps& steps)>& fn);
  /// Calls fn(layer, heads) for each block in order, with the queries, keys and values
  /// (B, nh, T, hs) of the block's causal attention on idx. No T x T matrix is computed: for a long
  /// sequence, `fn` can compute `attention_steps` for some heads or rows at a time.
  void for_each_projection(
      const at::Tensor& idx,
      const std::function<void(int64_t layer, const MultiHeadAttentionImpl::Projections& heads)>&
          fn);

  /// Empty caches for `forward`, one per block, each with capacity block_size.
  std::vector<KvCache> make_caches() const;

  GPTOptions options;
  Transformer transformer{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(static_cast<std::vector<KvCache>*>(nullptr))})

 private:
  void build(detail::Weights weights);
  void check_idx(const char* function, const at::Tensor& idx,
                 const std::vector<KvCache>* caches) const;
  at::Tensor embed(const at::Tensor& idx, int64_t position);
  at::Tensor final_states(const at::Tensor& idx, std::vector<KvCache>* caches);
  at::Tensor lm_head(const at::Tensor& states);
  void for_each_block(const at::Tensor& idx,
                      const std::function<void(int64_t, BlockImpl&, const at::Tensor&)>& fn);
  BlockImpl& block(int64_t layer);
};
TORCH_MODULE(GPT);

/// Aliases for `state_dict` and `load_state_dict`: nanoGPT's name of the tied head.
MINI_API extern const std::map<std::string, std::string>& kGPTAliases;

}  // namespace mini
