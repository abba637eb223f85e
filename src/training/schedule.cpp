// SPDX-License-Identifier: MIT
#include "mini/schedule.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "strict_math.h"

namespace mini {

LearningRateSchedule::LearningRateSchedule(torch::optim::Optimizer& optimizer,
                                           const ScheduleOptions& options)
    : LRScheduler(optimizer), options_(options) {
  TORCH_CHECK(options.warmup_steps >= 0,
              "LearningRateSchedule: expected warmup_steps of at least 0, got ",
              options.warmup_steps);
  TORCH_CHECK(!options.decay_end || *options.decay_end >= options.warmup_steps,
              "LearningRateSchedule: expected a decay_end of at least warmup_steps ",
              options.warmup_steps, ", got ", options.decay_end.value_or(0));
  TORCH_CHECK(options.min_factor >= 0.0 && options.min_factor <= 1.0,
              "LearningRateSchedule: expected a min_factor in [0, 1], got ", options.min_factor);
  const std::vector<double> rates = get_current_lrs();
  std::vector<double>& base_rates = options_.base_rates;
  if (base_rates.empty()) base_rates = rates;
  TORCH_CHECK(base_rates.size() == rates.size(),
              "LearningRateSchedule: expected one base rate for each of the ", rates.size(),
              " parameter groups, got ", base_rates.size());
  for (const double rate : base_rates) {
    TORCH_CHECK(std::isfinite(rate), "LearningRateSchedule: expected finite base rates, got ",
                rate);
  }
  step();  // sets the rates of step 0
}

double LearningRateSchedule::factor(int64_t step) const {
  const auto& [warmup_steps, decay_end, min_factor, base_rates] = options_;
  if (step < warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  }
  if (!decay_end) return 1.0;
  if (step >= *decay_end) return min_factor;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(*decay_end - warmup_steps);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));  // from 1 to 0
  return min_factor + cosine * (1.0 - min_factor);
}

void LearningRateSchedule::set_current_step(int64_t step) {
  constexpr int64_t kMost = int64_t{std::numeric_limits<decltype(step_count_)>::max()} - 1;
  TORCH_CHECK(step >= 0 && step <= kMost, "LearningRateSchedule: expected a step from 0 to ", kMost,
              ", got ", step);
  step_count_ = static_cast<decltype(step_count_)>(step);
  LRScheduler::step();  // sets the rates of step_count_, then increments it
}

std::vector<double> LearningRateSchedule::get_lrs() {
  std::vector<double> rates = get_current_lrs();
  std::vector<double>& base_rates = options_.base_rates;
  // Groups added since the last step.
  for (size_t i = base_rates.size(); i < rates.size(); ++i) base_rates.push_back(rates[i]);
  for (size_t i = 0; i < rates.size(); ++i) rates[i] = base_rates[i] * factor(step_count_);
  return rates;
}

}  // namespace mini
