// SPDX-License-Identifier: MIT
// Measures of rows of scores and rows of attention weights.
//
// Each function accepts a batch of rows, (..., T), of a floating dtype and returns a tensor of that
// dtype. The functions are differentiable. They throw c10::Error for any other argument.
#pragma once

#include <ATen/core/Tensor.h>

#include "mini/export.h"

namespace mini {

/// Entropy of each row of weights, -sum_j w_j ln w_j, in nats.  (..., T) -> (...)
/// 0 if one key has all the weight, ln T if all weights are equal.
/// Source: Shannon 1948, "A Mathematical Theory of Communication", section 6.
MINI_API at::Tensor weight_entropy(const at::Tensor& weights);

/// Entropy of each row of weights divided by its maximum, ln T.  (..., T) -> (...)
/// In [0, 1]. 0 for T = 1, where the maximum is 0.
MINI_API at::Tensor normalized_weight_entropy(const at::Tensor& weights);

/// Largest weight of each row.  (..., T) -> (...)
/// In [1 / T, 1], or 0 for a row that sees no key. T must be positive.
MINI_API at::Tensor peak_weight(const at::Tensor& weights);

/// Standard deviation of each row of scores.  (..., T) -> (...)
/// sqrt(sum_j (s_j - mean)^2 / (T - 1)), or 0 for T = 1.
/// If q and k are drawn from N(0, 1), the scores q k^T have standard deviation sqrt(d_k).
/// Source: Vaswani et al. 2017, "Attention Is All You Need", footnote 4.
MINI_API at::Tensor score_spread(const at::Tensor& scores);

/// Derivative of each weight with respect to its own softmax input.  (..., T) -> (..., T)
/// dw_j / dz_j = w_j (1 - w_j). The maximum is 1/4, at w_j = 1/2. Near 0 for a saturated softmax.
MINI_API at::Tensor softmax_slope(const at::Tensor& weights);

}  // namespace mini
