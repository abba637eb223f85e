// SPDX-License-Identifier: MIT
// A GPT: embeddings, a stack of blocks, and the token embedding again as the head.
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
  explicit GPTOptions(int64_t vocab_size);
  /// Number of different tokens, V.
  TORCH_ARG(int64_t, vocab_size);
  /// Longest sequence, and number of learned positions.
  TORCH_ARG(int64_t, block_size) = 64;
  /// Number of blocks.
  TORCH_ARG(int64_t, n_layer) = 4;
  /// Number of heads of each block, nh; divides C.
  TORCH_ARG(int64_t, n_head) = 4;
  /// Width of embeddings and blocks, C.
  TORCH_ARG(int64_t, n_embd) = 128;
  /// Probability of zeroing, while training, a number of the embeddings, an attention weight and a
  /// number of what attention and MLP add, in [0, 1].
  TORCH_ARG(double, dropout) = 0.0;
  /// Give layer norms and linear layers a bias, as GPT-2 does.
  TORCH_ARG(bool, bias) = false;
  /// "none", or "tanh" as GPT-2, as in `MlpOptions`.
  TORCH_ARG(std::string, gelu_approximate) = "none";
  /// Seed of the initial weights, as in `HeadOptions`.
  TORCH_ARG(std::optional<uint64_t>, seed) = std::nullopt;
};

/// The layers of a `GPT`, under nanoGPT's names; `GPT` runs them.
class MINI_API TransformerImpl : public torch::nn::Cloneable<TransformerImpl> {
 public:
  explicit TransformerImpl(GPTOptions options_);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  GPTOptions options;
  torch::nn::Embedding wte{nullptr};  ///< of tokens, (V, C)
  torch::nn::Embedding wpe{nullptr};  ///< of positions, (block_size, C)
  torch::nn::ModuleList h{nullptr};   ///< n_layer times `Block`
  LayerNorm ln_f{nullptr};
};
TORCH_MODULE(Transformer);

/// A GPT: for each position of each sequence, logits of the token that comes next.
///
/// The weight of the head is that of the token embedding; it is registered once, as
/// `transformer.wte.weight`, and `kGPTAliases` names it `lm_head.weight` beside. Weights are drawn
/// in the order of `parameters()`, as GPT-2's: matrices from N(0, 0.02), but each c_proj, which
/// adds to the residual stream, from N(0, 0.02 / sqrt(2 n_layer)); biases are 0. A seed gives the
/// weights that the global generator gives after `torch::manual_seed` with it.
///
/// Every method takes token ids idx (B, T) int64, T <= block_size. Gradients flow to the weights.
/// Dropout acts while the module is training.
/// Throws c10::Error for options out of range, and for an idx that is no such tensor, is too long,
/// or holds an id outside [0, V) (looked at on the CPU only).
class MINI_API GPTImpl : public torch::nn::Cloneable<GPTImpl> {
 public:
  explicit GPTImpl(GPTOptions options_);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// Logits (B, T, V).
  ///
  /// With caches, one for each block, idx continues the sequences that they hold, and is appended:
  /// length() + T <= block_size. They may not need gradients.
  at::Tensor forward(const at::Tensor& idx, std::vector<KvCache>* caches = nullptr);
  /// Logits (B, V) of the last position alone; T above 0.
  at::Tensor last_logits(const at::Tensor& idx, std::vector<KvCache>* caches = nullptr);
  /// Mean over all positions of -ln softmax(logits)[target], in nats: a scalar, in float32 for half
  /// types. targets as idx, of the same shape, B and T above 0.
  at::Tensor loss(const at::Tensor& idx, const at::Tensor& targets);
  /// Calls fn(layer, steps) for each block in turn, with the steps of its attention on idx:
  /// (B, nh, T, T) and, the output, (B, nh, T, hs). Under a NoGradGuard the steps of one layer are
  /// gone before the next are made, unless `fn` keeps them.
  void for_each_attention(
      const at::Tensor& idx,
      const std::function<void(int64_t layer, const AttentionSteps& steps)>& fn);
  /// The same with only what the heads attend with, q, k and v (B, nh, T, hs), and no T x T matrix:
  /// for long sequences, of which `fn` can take the steps a head or some rows at a time. The
  /// attention is causal.
  void for_each_projection(
      const at::Tensor& idx,
      const std::function<void(int64_t layer, const MultiHeadAttentionImpl::Projections& heads)>&
          fn);

  /// Empty caches for `forward`, one for each block, each with room for block_size positions.
  std::vector<KvCache> make_caches() const;

  GPTOptions options;
  Transformer transformer{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(static_cast<std::vector<KvCache>*>(nullptr))})

 private:
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

/// Further names of a GPT's tensors, for `state_dict` and `load_state_dict`: the head's of nanoGPT.
MINI_API extern const std::map<std::string, std::string> kGPTAliases;

}  // namespace mini
