// SPDX-License-Identifier: MIT
// Fused attention as two operators of LibTorch's dispatcher. The dispatcher adds gradients, tracing
// and vmap.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// False in a second copy of this library in one process. LibTorch accepts each operator once, and
/// an exception while a library is loaded would end the process, so the second copy registers
/// nothing. Both copies then call the operators of the first.
bool registers_operators();

/// Calls `fused_attention_forward` through the dispatcher. The caller has checked the arguments and
/// got null from `fused_attention_obstacle`.
at::Tensor dispatch_fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options);

}  // namespace mini::detail
