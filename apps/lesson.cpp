// SPDX-License-Identifier: MIT
#include "lesson.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mini/diagnostics.h"

namespace mini {

std::string slope_sentence(const at::Tensor& unscaled_weights, const at::Tensor& scaled_weights) {
  const double unscaled = slope(unscaled_weights).median().item<double>();
  const double scaled = slope(scaled_weights).median().item<double>();
  return fmt::format(
      "Median slope w (1 - w) of a weight: {:.2g} unscaled, {:.2g} scaled{}\n", unscaled, scaled,
      unscaled < 0.1 * scaled ? ": unscaled, most weights hardly follow their scores."
                              : ".\nThese scores are too small to put the softmax to sleep; "
                                "sweep_head_size shows where it does.");
}

}  // namespace mini
