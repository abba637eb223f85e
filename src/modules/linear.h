// SPDX-License-Identifier: MIT
// The linear map that MultiHeadAttention, Mlp and GPT share.
#pragma once

#include <ATen/ops/linear.h>
#include <torch/nn/modules/linear.h>

namespace mini::detail {

/// x weight^T + bias.  x (..., in), weight (out, in), bias (out) or undefined -> (..., out)
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias = {}) {
  return at::linear(x, weight, bias);
}

inline at::Tensor linear(const at::Tensor& x, const torch::nn::Linear& layer) {
  return linear(x, layer->weight, layer->bias);
}

}  // namespace mini::detail
