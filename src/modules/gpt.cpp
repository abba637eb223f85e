// SPDX-License-Identifier: MIT
#include "mini/gpt.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <ostream>
#include <span>
#include <utility>

#include "modules/cache_rollback.h"
#include "modules/linear.h"
#include "modules/module_checks.h"
#include "modules/print_option.h"
#include "modules/seeded_init.h"

namespace mini {
namespace {

void check_options(const GPTOptions& options) {
  TORCH_CHECK(options.vocab_size() > 0 && options.block_size() > 0 && options.n_layer() > 0,
              "GPT: expected vocab_size, block_size and n_layer above 0, got vocab_size ",
              options.vocab_size(), ", block_size ", options.block_size(), " and n_layer ",
              options.n_layer());
  detail::check_heads("GPT", options.n_embd(), options.n_head());
  detail::check_dropout("GPT", options.dropout());
  detail::check_scale("GPT", options.scale());
  detail::check_gelu("GPT", options.gelu_approximate());
}

// Radford et al. 2019, section 2.3: the smaller residual_std keeps the variance of the residual
// stream from growing with its 2 n_layer additions.
void draw_weights(const torch::nn::Module& transformer, const GPTOptions& options) {
  constexpr double kStd = 0.02;
  const double residual_std = kStd / std::sqrt(2.0 * static_cast<double>(options.n_layer()));
  const auto generator = detail::seeded_generator(options.seed());
  const at::NoGradGuard no_grad;
  for (const auto& parameter : transformer.named_parameters()) {
    const std::string& name = parameter.key();
    at::Tensor values = parameter.value();
    if (values.dim() == 2) {
      values.normal_(0.0, name.ends_with("c_proj.weight") ? residual_std : kStd, generator);
    } else if (name.ends_with("bias")) {
      values.zero_();
    }  // the constructor of LayerNorm has set its weight to 1
  }
}

void print_options(std::ostream& stream, const GPTOptions& options) {
  stream << "(vocab_size=" << options.vocab_size() << ", block_size=" << options.block_size()
         << ", n_layer=" << options.n_layer() << ", n_head=" << options.n_head()
         << ", n_embd=" << options.n_embd();
  detail::print_option(stream, "dropout", options.dropout(), 0.0);
  detail::print_option(stream, "bias", options.bias());
  detail::print_option(stream, "scale", options.scale());
  detail::print_option(stream, "gelu_approximate", options.gelu_approximate(), std::string("none"));
  detail::print_option(stream, "seed", options.seed());
  stream << ")";
}

int64_t cached_length(const std::vector<KvCache>* caches) {
  return caches == nullptr ? 0 : caches->front().length();
}

}  // namespace

// Never destroyed: two copies of this library in one process share the exported name, and each copy
// would destroy the same object.
const std::map<std::string, std::string>& kGPTAliases =
    *new std::map<std::string, std::string>{{"lm_head.weight", "transformer.wte.weight"}};

// ---- Transformer

TransformerImpl::TransformerImpl(GPTOptions options_, detail::Weights weights)
    : options(std::move(options_)) {
  build(weights);
}

void TransformerImpl::build(detail::Weights weights) {
  check_options(options);
  wte = register_module("wte", detail::undrawn_embedding(options.vocab_size(), options.n_embd()));
  wpe = register_module("wpe", detail::undrawn_embedding(options.block_size(), options.n_embd()));
  h = register_module("h", torch::nn::ModuleList());
  for (int64_t layer = 0; layer < options.n_layer(); ++layer) {
    h->push_back(Block(BlockOptions(options.n_embd(), options.n_head())
                           .bias(options.bias())
                           .causal(true)
                           .dropout(options.dropout())
                           .scale(options.scale())
                           .gelu_approximate(options.gelu_approximate()),
                       detail::Weights::kUndrawn));
  }
  ln_f =
      register_module("ln_f", LayerNorm(LayerNormOptions(options.n_embd()).bias(options.bias())));
  if (weights == detail::Weights::kDrawn) draw_weights(*this, options);
}

void TransformerImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::Transformer";
  print_options(stream, options);
}

// ModuleList::clone() leaves the list in training mode, whatever its mode was.
std::shared_ptr<torch::nn::Module> TransformerImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = Cloneable::clone(device);
  const auto modules = this->modules(/*include_self=*/false);
  const auto copied_modules = copy->modules(/*include_self=*/false);
  for (size_t i = 0; i < modules.size(); ++i) {  // parents first: train() sets children too
    copied_modules[i]->train(modules[i]->is_training());
  }
  return copy;
}

// ---- GPT

GPTImpl::GPTImpl(GPTOptions options_, detail::Weights weights) : options(std::move(options_)) {
  build(weights);
}

void GPTImpl::build(detail::Weights weights) {
  transformer = register_module("transformer", Transformer(options, weights));
}

void GPTImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::GPT";
  print_options(stream, options);
}

at::Tensor GPTImpl::forward(const at::Tensor& idx, std::vector<KvCache>* caches) {
  check_idx("GPT::forward", idx, caches);
  return lm_head(final_states(idx, caches));
}

at::Tensor GPTImpl::last_logits(const at::Tensor& idx, std::vector<KvCache>* caches) {
  check_idx("GPT::last_logits", idx, caches);
  TORCH_CHECK(idx.size(1) > 0, "GPT::last_logits: expected at least one token, got ", idx.sizes());
  return lm_head(final_states(idx, caches).select(1, -1));
}

at::Tensor GPTImpl::loss(const at::Tensor& idx, const at::Tensor& targets) {
  check_idx("GPT::loss", idx, nullptr);
  detail::check_token_ids("GPT::loss, targets", targets, options.vocab_size(),
                          transformer->wte->weight);
  TORCH_CHECK(
      idx.numel() > 0 && idx.sizes() == targets.sizes(),
      "GPT::loss: expected idx and targets of equal shape (B, T), B and T above 0, got idx ",
      idx.sizes(), " and targets ", targets.sizes());
  at::Tensor logits = lm_head(final_states(idx, nullptr)).flatten(0, 1);  // (B T, V)
  if (logits.scalar_type() == at::kHalf || logits.scalar_type() == at::kBFloat16) {
    logits = logits.to(at::kFloat);
  }
  return at::cross_entropy_loss(logits, targets.flatten());
}

void GPTImpl::for_each_attention(
    const at::Tensor& idx,
    const std::function<void(int64_t layer, const AttentionSteps& steps)>& fn) {
  check_idx("GPT::for_each_attention", idx, nullptr);
  for_each_block(idx, [&](int64_t layer, BlockImpl& block, const at::Tensor& x) {
    fn(layer, block.attention_steps(x));
  });
}

void GPTImpl::for_each_projection(
    const at::Tensor& idx,
    const std::function<void(int64_t layer, const MultiHeadAttentionImpl::Projections& heads)>&
        fn) {
  check_idx("GPT::for_each_projection", idx, nullptr);
  for_each_block(idx, [&](int64_t layer, BlockImpl& block, const at::Tensor& x) {
    fn(layer, block.attn->project(block.ln_1(x)));
  });
}

std::vector<KvCache> GPTImpl::make_caches() const {
  std::vector<KvCache> caches;
  for (int64_t layer = 0; layer < options.n_layer(); ++layer) {
    caches.emplace_back(options.block_size());
  }
  return caches;
}

void GPTImpl::check_idx(const char* function, const at::Tensor& idx,
                        const std::vector<KvCache>* caches) const {
  detail::check_token_ids(function, idx, options.vocab_size(), transformer->wte->weight);
  if (caches != nullptr) {
    TORCH_CHECK(caches->size() == transformer->h->size(), function,
                ": expected one cache for each of the ", transformer->h->size(), " blocks, got ",
                caches->size());
    for (const KvCache& cache : *caches) {
      TORCH_CHECK(cache.length() == cached_length(caches), function,
                  ": expected caches of equal length, got ", cached_length(caches), " and ",
                  cache.length());
    }
  }
  const int64_t cached = cached_length(caches);
  TORCH_CHECK(cached + idx.size(1) <= options.block_size(), function,
              ": expected at most block_size = ", options.block_size(), " tokens, got ",
              idx.size(1), caches == nullptr ? "" : c10::str(" after ", cached, " in the caches"));
}

// Sum of the embeddings of the tokens and of their positions, the first of which is `position`.
// (B, T) -> (B, T, C)
at::Tensor GPTImpl::embed(const at::Tensor& idx, int64_t position) {
  const at::Tensor tokens = transformer->wte(idx);  // (B, T, C)
  const at::Tensor positions = transformer->wpe->weight.narrow(0, position, idx.size(1));  // (T, C)
  return at::dropout(tokens + positions, options.dropout(), is_training());
}

// The input of the head.  (B, T) -> (B, T, C)
at::Tensor GPTImpl::final_states(const at::Tensor& idx, std::vector<KvCache>* caches) {
  const std::span<KvCache> all_caches = caches == nullptr ? std::span<KvCache>() : *caches;
  return detail::with_rollback(all_caches, [&] {
    at::Tensor x = embed(idx, cached_length(caches));  // (B, T, C)
    for (int64_t layer = 0; layer < options.n_layer(); ++layer) {
      KvCache* cache = caches == nullptr ? nullptr : &(*caches)[static_cast<size_t>(layer)];
      x = block(layer).forward(x, {}, cache);
    }
    return transformer->ln_f(x);
  });
}

// The tied head: logits of the states.  (..., C) -> (..., V)
at::Tensor GPTImpl::lm_head(const at::Tensor& states) {
  return detail::linear(states, transformer->wte->weight);
}

// Calls fn(layer, block, x) for each block in order, with the block's input x (B, T, C).
void GPTImpl::for_each_block(
    const at::Tensor& idx, const std::function<void(int64_t, BlockImpl&, const at::Tensor&)>& fn) {
  at::Tensor x = embed(idx, 0);  // (B, T, C)
  for (int64_t layer = 0; layer < options.n_layer(); ++layer) {
    fn(layer, block(layer), x);
    x = block(layer).forward(x);
  }
}

BlockImpl& GPTImpl::block(int64_t layer) {
  return transformer->h->at<BlockImpl>(static_cast<size_t>(layer));
}

}  // namespace mini
