// SPDX-License-Identifier: MIT
// A learning-rate schedule: linear warm-up, then cosine decay to a minimum.
//
// Source  nanoGPT's `get_lr`. Cosine: Loshchilov and Hutter 2017, "SGDR", equation 5.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "mini/export.h"

namespace mini {

/// Options for `LearningRateSchedule`: the factor that multiplies the learning rates at each step.
/// A step is one update of the optimizer; steps are counted from 0.
struct ScheduleOptions {
  /// Length of the warm-up. At step i < warmup_steps the factor is (i + 1) / (warmup_steps + 1).
  int64_t warmup_steps = 0;
  /// First step at which the factor is min_factor. If unset, the factor stays 1 after the warm-up.
  std::optional<int64_t> decay_end = std::nullopt;
  /// The factor at the end of the decay, in [0, 1].
  double min_factor = 0.0;
  /// The base rate of each parameter group. If empty, the groups' current learning rates.
  std::vector<double> base_rates = {};
};

/// Sets the learning rate of each parameter group of an optimizer: the group's base rate times a
/// factor that depends on the step.
///
///     mini::LearningRateSchedule schedule(optimizer, {.warmup_steps = 100, .decay_end = 2000});
///     for (...) {
///       optimizer.step();   // the constructor has set the rates of step 0
///       schedule.step();    // sets the rates of the next step
///     }
///
/// The base rates are read by the constructor. `torch::load` of an optimizer restores the learning
/// rates of the saved step: make the schedule before, or pass `base_rates`. If a group is added to
/// the optimizer later, its learning rate at the next `step` is its base rate.
///
/// The optimizer must outlive the schedule.
/// Throws c10::Error if warmup_steps is below 0, if decay_end is below warmup_steps, if min_factor
/// is not in [0, 1], or if base_rates does not have one finite rate for each group.
class MINI_API LearningRateSchedule final : public torch::optim::LRScheduler {
 public:
  LearningRateSchedule(torch::optim::Optimizer& optimizer, const ScheduleOptions& options);

  /// Returns the factor at `step`.
  double factor(int64_t step) const;

  /// Returns the step whose learning rates are in effect. A checkpoint needs no other state of the
  /// schedule.
  int64_t current_step() const { return int64_t{step_count_} - 1; }
  /// Sets the rates of `step`. Throws c10::Error if `step` is below 0 or above 2^32 - 2.
  void set_current_step(int64_t step);

 private:
  std::vector<double> get_lrs() override;

  ScheduleOptions options_;  // with the base rate of each group
};

}  // namespace mini
