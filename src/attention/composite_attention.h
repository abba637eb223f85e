// SPDX-License-Identifier: MIT
// The formula of attention, composed of LibTorch's operators. Every other path is tested against it.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// The factor on the scores: `options.scale`, or 1 / sqrt(d_k).
double attention_scale(const at::Tensor& q, const AttentionOptions& options);

/// Every step of the formula, for arguments that have been checked. Any device and dtype;
/// differentiable to any order.
AttentionSteps composite_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options);

}  // namespace mini::detail
