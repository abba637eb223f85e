// SPDX-License-Identifier: MIT
// What bench_training measures: the cases, and this library's side of each case.
#pragma once

#include <string>
#include <vector>

#include "common/report.h"
#include "mini/gpt.h"
#include "mini/optimizer.h"

namespace mini::app {

constexpr double kLearningRate = 1e-3;
constexpr int64_t kStepsPerTurn = 8;
constexpr int64_t kNewTokens = 255;

struct Case {
  std::string mode;  ///< train_eager, train_compiled, generate or generate_cached
  int64_t batch;

  bool trains() const { return mode.starts_with("train"); }
  bool compiled() const { return mode == "train_compiled"; }
  bool cached() const { return mode == "generate_cached"; }
  int64_t block_size() const { return trains() ? 64 : 256; }
  int64_t tokens_per_turn() const {
    return trains() ? kStepsPerTurn * batch * block_size() : kNewTokens;
  }
};

extern const std::vector<Case> kCases;

/// A GPT of this library with the weights and batches that both sides use.
class Ours {
 public:
  explicit Ours(const Case& what);

  /// Saves the weights and the batches, in the file that the peer loads.
  void save(const std::string& path) const;
  /// The arguments of the peer's GPT.
  Json sizes() const;

  /// Trains for `steps` steps and returns their losses.
  std::vector<double> train(int64_t steps);
  /// Generates kNewTokens tokens greedily and returns them after the prompt of one token.
  std::vector<int64_t> generate();

 private:
  GPT model_;
  torch::optim::AdamWOptions adamw_;
  AdamW optimizer_;
  at::Tensor idx_, targets_;  // (kBatches, B, T)
};

}  // namespace mini::app
