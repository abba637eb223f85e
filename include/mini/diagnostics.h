// SPDX-License-Identifier: MIT
// What can be read off rows of scores and of attention weights.
//
// Each function takes any batch of rows, (..., T), in a floating dtype, and gives numbers of that
// dtype; gradients flow. Each throws c10::Error for a tensor that is no such batch.
#pragma once

#include <ATen/core/Tensor.h>

#include "mini/export.h"

namespace mini {

/// Entropy of each row of weights, -sum_j w_j ln w_j, in nats.  (..., T) -> (...)
/// From 0, all weight in one place, to ln T, all weights equal.
/// Source: Shannon 1948, "A Mathematical Theory of Communication", section 6.
MINI_API at::Tensor weight_entropy(const at::Tensor& weights);

/// Entropy of each row as a share of the largest it can be, ln T.  (..., T) -> (...)
/// From 0 to 1; 0 for T = 1, where there is nothing to share.
MINI_API at::Tensor normalized_weight_entropy(const at::Tensor& weights);

/// Largest weight of each row.  (..., T) -> (...)
/// From 1 / T to 1, or 0 for a row that sees nothing. T must be above 0.
MINI_API at::Tensor peak_weight(const at::Tensor& weights);

/// Standard deviation of each row of scores, sqrt(sum_j (s_j - mean)^2 / (T - 1)).  (..., T) ->
/// (...) 0 for T = 1. With q, k ~ N(0, 1) the scores q k^T have a spread of sqrt(d_k). Source:
/// Vaswani et al. 2017, "Attention Is All You Need", footnote 4.
MINI_API at::Tensor score_spread(const at::Tensor& scores);

/// How far each weight follows its own softmax input, dw_j / dz_j = w_j (1 - w_j).  (..., T) ->
/// (..., T) From 0, a softmax that has gone to sleep, to 1/4 at w_j = 1/2.
MINI_API at::Tensor softmax_slope(const at::Tensor& weights);

}  // namespace mini
