// SPDX-License-Identifier: MIT
#include "mini/generate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "modules/module_checks.h"
#include "modules/sampling.h"
#include "modules/seeded_init.h"

namespace mini {
namespace {

void check_arguments(const GPT& model, const at::Tensor& tokens, const GenerateOptions& options) {
  TORCH_CHECK(!model.is_empty(), "generate: expected a model, got an empty GPT");
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  TORCH_CHECK(options.new_tokens >= 0 && options.new_tokens <= kMostTokens,
              "generate: expected new_tokens from 0 to 2^31 - 1, got ", options.new_tokens);
  TORCH_CHECK(std::isfinite(options.temperature) && options.temperature >= 0.0,
              "generate: expected a finite temperature of at least 0, got ", options.temperature);
  TORCH_CHECK(!options.top_k || *options.top_k > 0, "generate: expected top_k above 0, got ",
              options.top_k.value_or(0));
  TORCH_CHECK(!options.top_p || (*options.top_p > 0.0 && *options.top_p <= 1.0),
              "generate: expected top_p in (0, 1], got ", options.top_p.value_or(0.0));
  detail::check_token_ids("generate", tokens, model->options.vocab_size(),
                          model->transformer->wte->weight);
  TORCH_CHECK(
      tokens.size(1) > 0,
      "generate: expected a prompt of at least one token, tokens (B, T) with T above 0, got ",
      tokens.sizes());
}

// Sets evaluation mode. The destructor restores the mode of each module.
class EvaluationMode {
 public:
  explicit EvaluationMode(GPT& model) {
    for (const auto& module : model->modules()) modes_.emplace_back(module, module->is_training());
    if (std::ranges::any_of(modes_, [](const auto& mode) { return mode.second; })) {
      model->eval();
    } else {
      modes_.clear();  // the model is only read, so that threads can share it
    }
  }
  ~EvaluationMode() {
    for (auto& [module, was_training] : modes_) {  // parents first: train() sets children too
      module->train(was_training);
    }
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

// The part of the sequences that the model sees, and its cached keys and values.
class Context {
 public:
  Context(GPT& model, const GenerateOptions& options, int64_t prompt)
      : model_(model),
        block_size_(model->options.block_size()),
        kept_(options.full_context == FullContext::kExact ? block_size_
                                                          : std::max<int64_t>(block_size_ / 2, 1)),
        begin_(std::max<int64_t>(prompt - block_size_, 0)) {
    if (options.use_cache) caches_ = model->make_caches();
  }

  /// Logits (B, V) of the token after the first `end` tokens of each sequence.
  at::Tensor next_logits(const at::Tensor& sequences, int64_t end) {
    if (end - begin_ > block_size_) {
      begin_ = end - kept_;
      for (KvCache& cache : caches_) cache.clear();
    }
    const int64_t computed = begin_ + (caches_.empty() ? 0 : caches_.front().length());
    return model_->last_logits(sequences.narrow(1, computed, end - computed),
                               caches_.empty() ? nullptr : &caches_);
  }

 private:
  GPT& model_;
  int64_t block_size_;
  int64_t kept_;   // number of tokens that are kept when the context overflows
  int64_t begin_;  // the first token that the model sees
  std::vector<KvCache> caches_;
};

double uniform(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::uniform_real_distribution<double> distribution(0.0, 1.0);
  return distribution(at::check_generator<at::CPUGeneratorImpl>(generator));
}

// One new token for each sequence.  (B, V) -> (B)
at::Tensor choose(const at::Tensor& logits, const GenerateOptions& options,
                  at::Generator& generator) {
  const at::Tensor rows = logits.to(at::kCPU, at::kDouble).contiguous();
  const auto vocab_size = static_cast<size_t>(rows.size(1));
  at::Tensor next = at::empty({rows.size(0)}, at::kLong);
  for (int64_t b = 0; b < rows.size(0); ++b) {
    const std::span<const double> row(rows.const_data_ptr<double>() + b * rows.stride(0),
                                      vocab_size);
    TORCH_CHECK(
        std::all_of(row.begin(), row.end(), [](double logit) { return !std::isnan(logit); }) &&
            std::isfinite(*std::max_element(row.begin(), row.end())),
        "generate: expected finite logits, got NaN or infinity from the model");
    next.mutable_data_ptr<int64_t>()[b] =
        options.temperature == 0.0 ? detail::greedy_token(row)
                                   : detail::sampled_token(row, options, uniform(generator));
  }
  return next;
}

}  // namespace

at::Tensor generate(GPT& model, const at::Tensor& tokens, const GenerateOptions& options,
                    const std::function<void(const at::Tensor& next)>& on_token) {
  check_arguments(model, tokens, options);
  at::Generator generator =
      detail::seeded_generator(options.seed).value_or(at::detail::getDefaultCPUGenerator());
  const EvaluationMode evaluation(model);

  const int64_t prompt = tokens.size(1);
  // Allocated outside inference mode, so that the result can be used in training.
  at::Tensor sequences = at::empty({tokens.size(0), prompt + options.new_tokens}, tokens.options());
  sequences.narrow(1, 0, prompt).copy_(tokens);
  Context context(model, options, prompt);
  for (int64_t end = prompt; end < sequences.size(1); ++end) {
    {
      const c10::InferenceMode inference;
      const at::Tensor logits = context.next_logits(sequences, end);  // (B, V)
      sequences.select(1, end).copy_(choose(logits, options, generator));
    }
    if (on_token) on_token(sequences.select(1, end));
  }
  return sequences;
}

}  // namespace mini
