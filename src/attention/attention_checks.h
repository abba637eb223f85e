// SPDX-License-Identifier: MIT
// Checks the arguments of the public functions, once.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// Throws c10::Error if q, k, v or the options break the contract of mini/attention.h. The message
/// begins with `function`.
void check_attention_arguments(const char* function, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOptions& options);

}  // namespace mini::detail
