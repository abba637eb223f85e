// SPDX-License-Identifier: MIT
// Checks of the modules' options and inputs, made once where a public call enters.
//
// Each throws c10::Error. The message begins with the given module or function.
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

/// x must be (..., T, C) with C = n_embd, and have the dtype and device of `weight`. Under autocast
/// the dtypes may differ, unless one is float64.
void check_input(const char* function, const at::Tensor& x, int64_t n_embd,
                 const at::Tensor& weight);

/// ids must be (B, T) int64 on the device of `weight`, with values in [0, vocab_size). Values are
/// checked on the CPU only: elsewhere, reading them would wait for the device, and LibTorch's
/// embedding checks them there.
void check_token_ids(const char* function, const at::Tensor& ids, int64_t vocab_size,
                     const at::Tensor& weight);

}  // namespace mini::detail
