// SPDX-License-Identifier: MIT
// A training run: what it consists of, how it begins, and how it goes on.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "gpt/run_folder.h"
#include "mini/checkpoint.h"
#include "mini/gpt.h"
#include "mini/optimizer.h"
#include "mini/schedule.h"
#include "mini/text.h"

namespace mini::app {

/// Everything that changes from step to step, and what it changes by.
struct Training {
  /// Takes tokenizer and tokens from the folder `run`; all else is as before the first step. Sets
  /// the number of threads and the seed of LibTorch's global generator, which dropout draws from.
  /// Throws std::runtime_error or c10::Error for what cannot be trained.
  Training(const std::filesystem::path& run, const RunConfig& config_);

  /// Checkpoints, as `save_checkpoint` and `load_checkpoint` do them.
  void save(const std::filesystem::path& path);
  void load(const std::filesystem::path& path);

  int64_t tokens_per_step() const {
    return config.accumulate * config.batch_size * config.block_size;
  }

  RunConfig config;
  Tokenizer tokenizer;
  TokenSplit tokens;
  GPT model;
  RandomWindows windows;
  AdamW optimizer;
  LearningRateSchedule schedule;
  TrainingState state;
};

/// Makes the folder of a run, whole or not at all: configuration, tokenizer, and the encoded text.
/// With the model of `config.init_from` it begins with that one's weights, as its first checkpoint,
/// of which a smaller block_size takes the first positions.
/// Throws, and makes none, for what cannot be trained and for a folder that is not empty.
std::unique_ptr<Training> begin_run(const std::filesystem::path& run, const RunConfig& config,
                                    const std::optional<TrainedModel>& init);

/// What stands in the folder of a run, as of its last checkpoint if it has one yet.
std::unique_ptr<Training> resume_run(const std::filesystem::path& run, const RunConfig& config);

/// Held by the one process that may train in a folder; another one's attempt throws
/// std::runtime_error.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace mini::app
