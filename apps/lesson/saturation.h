// SPDX-License-Identifier: MIT
// Saturation, as the lesson's programs measure and describe it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mini::app {

/// A softmax is saturated if its median slope w (1 - w) is below this share of the median slope of
/// even weights.
constexpr double kSaturatedShare = 0.01;
bool is_saturated(double median_slope, double even_slope);

/// Medians of w (1 - w) over the visible weights of rows with at least two visible keys. (Where a
/// row has one visible key, its weight is 1 whatever the scores.)
struct MedianSlopes {
  double unscaled, scaled;
  double even;  ///< for equal weights on all visible keys of a row
};

/// The weights have the shape (..., Tq, Tk). `even_weights` are the weights of the same call with a
/// scale of 0; they are above 0 exactly where a key is visible. The medians are NaN if each row has
/// at most one visible key.
MedianSlopes median_slopes(const at::Tensor& unscaled_weights, const at::Tensor& scaled_weights,
                           const at::Tensor& even_weights);

/// Lines that give the median slopes and say which softmax is saturated.
std::string saturation_text(const MedianSlopes& slopes);

}  // namespace mini::app
