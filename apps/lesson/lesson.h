// SPDX-License-Identifier: MIT
// What the lesson's apps say alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mini::app {

/// Median slopes of the weights that have a choice: visible ones, in rows that see at least two
/// keys.
struct MedianSlopes {
  double unscaled, scaled;
  double even;  ///< where all the keys of a row weigh the same
};

/// The weights are (..., Tq, Tk). `even_weights` are those of the same call with a scale of 0:
/// above 0 where a key is visible. NaN where no weight has a choice.
MedianSlopes median_slopes(const at::Tensor& unscaled_weights, const at::Tensor& scaled_weights,
                           const at::Tensor& even_weights);

/// The lesson says that an unscaled softmax leaves very small gradients for most entries: lines
/// on whether these weights show it. A softmax is called asleep where the median slope is below a
/// hundredth of that of even weights.
std::string slope_sentence(const MedianSlopes& slopes);

}  // namespace mini::app
