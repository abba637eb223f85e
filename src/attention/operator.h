// SPDX-License-Identifier: MIT
// The fused attention as an operator of LibTorch's dispatcher.
#pragma once

#include "mini/attention.h"

namespace mini {

/// `fused_attention` by way of the dispatcher: with gradients, tracing, and from Python.
at::Tensor dispatch_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options);

}  // namespace mini
