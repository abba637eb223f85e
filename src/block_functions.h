// SPDX-License-Identifier: MIT
// GELU and layer norm: LibTorch's, and for float32 on the CPU our own kernel, with gradients of any
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "mini/export.h"

namespace mini::detail {

/// x Phi(x), elementwise; with `approximate` "tanh" LibTorch's approximation to it.
MINI_API at::Tensor gelu(const at::Tensor& x, const std::string& approximate);

/// (x - mean) / sqrt(variance + 1e-5) * weight + bias over the last dimension.
/// x (..., C), weight (C), bias (C) or undefined -> (..., C)
MINI_API at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias);

}  // namespace mini::detail
