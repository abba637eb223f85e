// SPDX-License-Identifier: MIT
// Checkpoints of a training run. A run that was stopped or killed resumes from its last checkpoint
// and, with the same number of threads, computes the same bits as an uninterrupted run.
//
// A checkpoint is a folder of four files:
//   model.safetensors       parameters and buffers of the module, from `state_dict`
//   optimizer.safetensors   state of the optimizer, from `optimizer_state_dict`
//   generators.safetensors  states of the random generators, as uint8 tensors
//   state.json              step, time, best validation loss and configuration
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

/// The state of a training run apart from its model and its optimizer.
struct TrainingState {
  /// Number of updates so far, for `LearningRateSchedule::set_current_step`.
  int64_t step = 0;
  /// Training time so far.
  double seconds = 0.0;
  /// Lowest validation loss so far.
  double best_val_loss = std::numeric_limits<double>::infinity();
  /// `get_state()` of each random generator, under names that the caller chooses.
  std::map<std::string, at::Tensor> generators = {};
  /// Settings that must be equal when the run resumes, each as text.
  std::map<std::string, std::string> config = {};
};

/// Writes a checkpoint to the folder `path`. A checkpoint that is already there is replaced.
///
/// The new folder is written next to `path`, flushed to disk, and then replaces the old folder in
/// one step. If an error, a full disk or a kill interrupts the save, the old checkpoint remains
/// valid. Leftovers are never loaded; the next save removes them. Only one process may write to a
/// path at a time.
///
/// Throws c10::Error if a file cannot be written, if the folder at `path` holds files that do not
/// belong to a checkpoint, if a generator state is not a uint8 tensor, if `seconds` is not finite,
/// or if `best_val_loss` is NaN or -infinity.
MINI_API void save_checkpoint(const std::filesystem::path& path, const torch::nn::Module& module,
                              const torch::optim::AdamW& optimizer, const TrainingState& state);

/// Loads the checkpoint at `path` into `module` and `optimizer`, and returns its training state.
///
/// `module` and `optimizer` must be constructed like the saved ones, and `config` must equal the
/// saved configuration. The tensors of `module` are filled in place. Nothing refers to the files
/// afterwards.
///
/// Throws c10::Error if a file is missing, cut off, damaged or of another version; if the files
/// belong to different steps; if the configurations differ; or if a tensor does not fit. If
/// configurations differ, the message gives the expected and the saved value of each setting that
/// differs. On error, `module` and `optimizer` are unchanged, with one exception: if a tensor does
/// not fit the optimizer, `module` is already loaded.
MINI_API TrainingState load_checkpoint(const std::filesystem::path& path, torch::nn::Module& module,
                                       torch::optim::AdamW& optimizer,
                                       const std::map<std::string, std::string>& config);

}  // namespace mini
