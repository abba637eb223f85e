// SPDX-License-Identifier: MIT
// Checkpoints: what a training run needs to go on as if it had never stopped.
//
// A folder of model.safetensors (the module's parameters and buffers), optimizer.safetensors
// (`optimizer_state_dict`) and state.json (`TrainingState`).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>

#include "mini/export.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class AdamW;
}

namespace mini {

/// What belongs to a run beside its model and its optimizer.
struct TrainingState {
  int64_t step = 0;      ///< Updates made; a `LearningRateSchedule` is set to it.
  double seconds = 0.0;  ///< Time they took.
  double best_val_loss = std::numeric_limits<double>::infinity();
  /// What each random generator's `get_state()` gave, by names of the caller's.
  std::map<std::string, at::Tensor> generators = {};
  /// Whatever must be the same when the run goes on, as text.
  std::map<std::string, std::string> config = {};
};

/// Writes a checkpoint to the folder `path`, in place of the one that is there.
///
/// The new one is written beside it, flushed to the disk, and takes its place in one step: an
/// error, a full disk or a kill at any moment leaves the last good one, and what else it leaves is
/// never loaded and goes with the next save. There may be one writer of a path at a time.
///
/// Throws c10::Error if it cannot be written, or if `path` is a folder of other files.
MINI_API void save_checkpoint(const std::filesystem::path& path, const torch::nn::Module& module,
                              const torch::optim::AdamW& optimizer, const TrainingState& state);

/// Loads the checkpoint at `path` into `module` and `optimizer`, and returns the rest.
///
/// Module and optimizer must be made as those that were saved. The tensors that they hold keep
/// their places; nothing refers to the files afterwards.
///
/// Throws c10::Error if a file is missing, cut off, damaged or of another version, if the files
/// belong to different steps, if the saved configuration is not `config` (naming both values of
/// whatever differs), or if a tensor does not fit. Module and optimizer are
/// untouched then, but for the last: they may have been loaded in part.
MINI_API TrainingState load_checkpoint(const std::filesystem::path& path, torch::nn::Module& module,
                                       torch::optim::AdamW& optimizer,
                                       const std::map<std::string, std::string>& config);

}  // namespace mini
