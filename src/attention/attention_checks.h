// SPDX-License-Identifier: MIT
// The contract's rules on arguments, checked once at the public border.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// Throws c10::Error, its message beginning with `function`, unless q, k, v and the options agree.
void check_attention_arguments(const char* function, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOptions& options);

}  // namespace mini::detail
