// SPDX-License-Identifier: MIT
// The functions of a transformer block between its matrix products: split_heads, gelu, layer_norm.
//
// They run this library's kernels for float32 on the CPU, and LibTorch's functions otherwise.
// Gradients flow, also of higher order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mini/export.h"

namespace mini::detail {

/// Queries, keys and values of one packed projection: three views of it.
/// packed (..., T, 3 C) -> 3 times (..., n_head, T, C / n_head)
MINI_API std::vector<at::Tensor> split_heads(const at::Tensor& packed, int64_t n_head);

/// x Phi(x), elementwise. If `approximate` is "tanh", LibTorch's tanh approximation of it.
MINI_API at::Tensor gelu(const at::Tensor& x, const std::string& approximate);

/// (x - mean) / sqrt(variance + 1e-5) * weight + bias over the last dimension.
/// x (..., C), weight (C), bias (C) or undefined -> (..., C)
MINI_API at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias);

}  // namespace mini::detail
