// SPDX-License-Identifier: MIT
// The learning rate over a training run: linear warm-up, then a cosine down to a minimum.
//
// Source  nanoGPT's `get_lr`; the cosine is that of Loshchilov and Hutter 2017, "SGDR", equation 5.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "mini/export.h"

namespace mini {

/// The factor on the learning rates at each step. Steps count updates of the optimizer, from 0.
struct ScheduleOptions {
  /// Steps before the factor is 1; step i of them has (i + 1) / (warmup_steps + 1), never 0.
  int64_t warmup_steps = 0;
  /// First step at the minimum; unset keeps the factor at 1 after the warm-up.
  std::optional<int64_t> decay_end = std::nullopt;
  /// The minimum, in [0, 1].
  double min_factor = 0.0;
};

/// Sets the rates of an optimizer's groups to the rate each had at the start, times the factor.
///
///     mini::LearningRateSchedule schedule(optimizer, {.warmup_steps = 100, .decay_end = 2000});
///     for (...) {
///       optimizer.step();   // the first one already at the rate of step 0
///       schedule.step();    // on to the next step
///     }
///
/// Refers to the optimizer, which must outlive it.
/// Throws c10::Error for steps below 0, a decay_end before the end of the warm-up, or a min_factor
/// out of range.
class MINI_API LearningRateSchedule final : public torch::optim::LRScheduler {
 public:
  LearningRateSchedule(torch::optim::Optimizer& optimizer, const ScheduleOptions& options);

  /// The factor at `step`.
  double factor(int64_t step) const;

  /// The step whose rates are set; all there is to save.
  int64_t current_step() const { return int64_t{step_count_} - 1; }
  /// Sets the rates of `step`, as if all before it had been gone through.
  void set_current_step(int64_t step);

 private:
  std::vector<double> get_lrs() override;

  ScheduleOptions options_;
  std::vector<double> base_rates_;  // of each group, at a factor of 1
};

}  // namespace mini
