// SPDX-License-Identifier: MIT
#include "training_cases.h"

#include <torch/torch.h>

#include "mini/data_parallel.h"
#include "mini/generate.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"

namespace mini::app {
namespace {

constexpr int64_t kVocabSize = 65;
constexpr int64_t kBatches = 8;  // training repeats these batches

}  // namespace

const std::vector<Case> kCases = {{"train_eager", 12},    {"train_eager", 32},
                                  {"train_compiled", 12}, {"train_compiled", 32},
                                  {"generate", 1},        {"generate_cached", 1}};

Ours::Ours(const Case& what)
    : model_(GPTOptions(kVocabSize).block_size(what.block_size()).seed(1337)),
      adamw_(kLearningRate),
      optimizer_(model_->parameters(), adamw_) {
  torch::manual_seed(42);
  idx_ = torch::randint(kVocabSize, {kBatches, what.batch, what.block_size()}, at::kLong);
  targets_ = torch::randint(kVocabSize, idx_.sizes(), at::kLong);
}

void Ours::save(const std::string& path) const {
  auto tensors = state_dict(*model_, kGPTAliases);
  tensors.insert("idx", idx_);
  tensors.insert("targets", targets_);
  save_safetensors(path, tensors);
}

Json Ours::sizes() const {
  const GPTOptions& o = model_->options;
  return {{"vocab_size", o.vocab_size()},
          {"block_size", o.block_size()},
          {"n_layer", o.n_layer()},
          {"n_head", o.n_head()},
          {"n_embd", o.n_embd()}};
}

std::vector<double> Ours::train(int64_t steps) {
  std::vector<at::Tensor> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor idx = idx_[step % kBatches], targets = targets_[step % kBatches];  // (B, T)
    const int64_t batch_size = idx.size(0);
    const auto loss_of = [&](int64_t begin, int64_t end) {
      const double share = static_cast<double>(end - begin) / static_cast<double>(batch_size);
      return model_->loss(idx.slice(0, begin, end), targets.slice(0, begin, end)) * share;
    };
    optimizer_.zero_grad();
    losses.push_back(data_parallel_backward(model_->parameters(), batch_size, loss_of));
    optimizer_.step();
  }
  return numbers(at::stack(losses));
}

std::vector<int64_t> Ours::generate() {
  const at::Tensor prompt = idx_.slice(0, 0, 1).select(1, 0).slice(1, 0, 1);  // (1, 1)
  const at::Tensor tokens =
      mini::generate(model_, prompt, {.new_tokens = kNewTokens, .temperature = 0.0});
  return {tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel()};
}

}  // namespace mini::app
