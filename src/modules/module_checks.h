// SPDX-License-Identifier: MIT
// The modules' rules on options and inputs, checked once at the public border.
//
// Each throws c10::Error, its message beginning with the module or function it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace mini::detail {

void check_heads(const char* module, int64_t n_embd, int64_t n_head);
void check_dropout(const char* module, double dropout);
void check_scale(const char* module, const std::optional<double>& scale);
void check_gelu(const char* module, const std::string& approximate);

/// x is (..., T, C) with C = n_embd, of the dtype and on the device of the weights.
void check_input(const char* function, const at::Tensor& x, int64_t n_embd,
                 const at::Tensor& weight);

/// ids is (B, T) int64, on the device of the weights, each in [0, vocab_size). Their values are
/// read on the CPU only: elsewhere this would wait for the device, and LibTorch checks them there.
void check_token_ids(const char* function, const at::Tensor& ids, int64_t vocab_size,
                     const at::Tensor& weight);

}  // namespace mini::detail
