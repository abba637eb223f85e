// SPDX-License-Identifier: MIT
#include "lesson/saturation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "mini/diagnostics.h"

namespace mini::app {
namespace {

std::string verdict(bool unscaled_is_saturated, bool scaled_is_saturated) {
  if (unscaled_is_saturated && scaled_is_saturated) {
    return "Both softmaxes are saturated: most of their weights hardly change with the scores.";
  }
  if (!unscaled_is_saturated && !scaled_is_saturated) {
    return "Neither softmax is saturated at these scores; sweep_head_size shows where saturation "
           "begins.";
  }
  return fmt::format(
      "The {} softmax is saturated: most of its weights hardly change with the scores.\n"
      "The {} softmax is not saturated.",
      unscaled_is_saturated ? "unscaled" : "scaled", unscaled_is_saturated ? "scaled" : "unscaled");
}

}  // namespace

bool is_saturated(double median_slope, double even_slope) {
  return median_slope < kSaturatedShare * even_slope;
}

MedianSlopes median_slopes(const at::Tensor& unscaled_weights, const at::Tensor& scaled_weights,
                           const at::Tensor& even_weights) {
  const at::Tensor visible = even_weights.gt(0);
  const at::Tensor keys = visible.sum(-1, /*keepdim=*/true);
  const at::Tensor counted = visible.logical_and(keys.gt(1));
  const auto median = [&](const at::Tensor& weights) {
    const at::Tensor slopes = softmax_slope(weights).masked_select(counted);
    return slopes.numel() == 0 ? NAN : slopes.median().item<double>();
  };
  return {median(unscaled_weights), median(scaled_weights),
          median(visible.to(even_weights.scalar_type()).div(keys))};
}

std::string saturation_text(const MedianSlopes& slopes) {
  if (std::isnan(slopes.even)) {
    return "Each query sees at most one key, so no weight depends on the scores.\n";
  }
  return fmt::format(
      "The median slope w (1 - w) is {:#.2g} unscaled, {:#.2g} scaled, and {:#.2g} for even "
      "weights.\n"
      "{}\n"
      "(Saturated: a median slope below {:#.2g}, one hundredth of the slope of even weights.)\n",
      slopes.unscaled, slopes.scaled, slopes.even,
      verdict(is_saturated(slopes.unscaled, slopes.even), is_saturated(slopes.scaled, slopes.even)),
      kSaturatedShare * slopes.even);
}

}  // namespace mini::app
