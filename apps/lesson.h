// SPDX-License-Identifier: MIT
// What the lesson's apps say alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mini {

/// The lesson says that an unscaled softmax leaves very small gradients for most entries. One
/// sentence, ending in a newline, on whether these weights show it: the median slopes of both.
std::string slope_sentence(const at::Tensor& unscaled_weights, const at::Tensor& scaled_weights);

}  // namespace mini
