// SPDX-License-Identifier: MIT
// A training run: its state, how a new run starts, and how a run resumes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "files/descriptor.h"
#include "gpt/run_config.h"
#include "gpt/run_folder.h"
#include "mini/checkpoint.h"
#include "mini/gpt.h"
#include "mini/optimizer.h"
#include "mini/schedule.h"
#include "mini/text.h"

namespace mini::app {

/// The state of a run, and the objects that update it.
struct Training {
  /// The state before the first step. Reads tokenizer and tokens from the folder `run`. Sets
  /// LibTorch's number of threads, and seeds its global generator, which dropout draws from.
  /// Throws std::runtime_error or c10::Error if the text is too short or a setting is invalid.
  Training(const std::filesystem::path& run, const RunConfig& config_);

  /// Writes and reads a checkpoint with `save_checkpoint` and `load_checkpoint`.
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

/// Starts a new run. Creates its folder with configuration, tokenizer and encoded text, completely
/// or not at all.
///
/// If `init` is set, the run starts with the weights of that model and saves them as its first
/// checkpoint. A smaller block_size keeps the first positions.
///
/// Throws if `run` exists and is not an empty folder, or if the text cannot be trained on.
std::unique_ptr<Training> begin_run(const std::filesystem::path& run, const RunConfig& config,
                                    const std::optional<TrainedModel>& init);

/// Resumes the run in a folder from its checkpoint `last`. If there is only a checkpoint `best`,
/// because the process was killed between the first two saves, resumes from `best` and saves it as
/// `last`. A run without checkpoints starts at its first step.
std::unique_ptr<Training> resume_run(const std::filesystem::path& run, const RunConfig& config);

/// Allows one process at a time to train in a folder. Throws std::runtime_error if another process
/// holds the lock. Has no effect on a file system without locks.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run);

 private:
  detail::Descriptor descriptor_;
};

}  // namespace mini::app
