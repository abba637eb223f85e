// SPDX-License-Identifier: MIT
#include "lesson/lesson.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "mini/diagnostics.h"

namespace mini::app {

MedianSlopes median_slopes(const at::Tensor& unscaled_weights, const at::Tensor& scaled_weights,
                           const at::Tensor& even_weights) {
  const at::Tensor visible = even_weights.gt(0);
  const at::Tensor keys = visible.sum(-1, /*keepdim=*/true);
  const at::Tensor has_choice = visible.logical_and(keys.gt(1));
  const auto median = [&](const at::Tensor& weights) {
    const at::Tensor slopes = softmax_slope(weights).masked_select(has_choice);
    return slopes.numel() == 0 ? NAN : slopes.median().item<double>();
  };
  return {median(unscaled_weights), median(scaled_weights),
          median(visible.to(even_weights.scalar_type()).div(keys))};
}

std::string slope_sentence(const MedianSlopes& slopes) {
  if (std::isnan(slopes.even)) {
    return "No row sees two keys or more, so no weight has a choice.\n";
  }
  const double sleep = 0.01 * slopes.even;
  const auto asleep = [&](double slope) { return slope < sleep; };
  const char* verdict =
      asleep(slopes.unscaled) && asleep(slopes.scaled)
          ? "With the factor or without, most weights hardly follow their scores: both softmaxes "
            "sleep."
      : asleep(slopes.unscaled) ? "Unscaled, most weights hardly follow their scores: that softmax "
                                  "sleeps, the scaled one not."
      : asleep(slopes.scaled)   ? "Scaled, most weights hardly follow their scores: that softmax "
                                  "sleeps, the unscaled one not."
                                : "Both softmaxes are awake at these scores; sweep_head_size shows "
                                  "what puts one to sleep.";
  return fmt::format(
      "Median slope w (1 - w): {:#.2g} unscaled, {:#.2g} scaled, {:#.2g} if all were even.\n{}\n"
      "(Asleep: a median slope below {:#.2g}, a hundredth of that of even weights.)\n",
      slopes.unscaled, slopes.scaled, slopes.even, verdict, sleep);
}

}  // namespace mini::app
