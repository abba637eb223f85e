// SPDX-License-Identifier: MIT
// The formula of attention as LibTorch operators. Tests compare the other paths against it.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// Factor on the scores: `options.scale` if set, otherwise 1 / sqrt(d_k).
double attention_scale(const at::Tensor& q, const AttentionOptions& options);

/// A floating mask in the dtype of the scores. A finite entry stays finite even if `dtype` cannot
/// hold it, since only -infinity hides a key.
at::Tensor mask_as(const at::Tensor& mask, at::ScalarType dtype);

/// Every step of the formula. The caller has checked the arguments. Works on any device and for
/// every dtype of the contract. The steps are differentiable to any order.
AttentionSteps composite_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options);

}  // namespace mini::detail
