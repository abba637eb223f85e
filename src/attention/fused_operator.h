// SPDX-License-Identifier: MIT
// Fused attention as a pair of operators of LibTorch's dispatcher, which gives it gradients, tracing
// and vmap.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// `fused_attention_forward` through the dispatcher. Nothing rules the kernel out, and the arguments
/// have been checked.
at::Tensor dispatch_fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options);

}  // namespace mini::detail
