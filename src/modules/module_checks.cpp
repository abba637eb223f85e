// SPDX-License-Identifier: MIT
#include "modules/module_checks.h"

#include <ATen/core/TensorAccessor.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "attention/autocast.h"
#include "strict_math.h"

namespace mini::detail {
namespace {

// Autocast converts between these dtypes.
bool is_cast(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

bool fit_together(const at::Tensor& x, const at::Tensor& weight) {
  return x.scalar_type() == weight.scalar_type() ||
         (is_cast(x.scalar_type()) && is_cast(weight.scalar_type()) && autocast_enabled(x));
}

}  // namespace

void check_heads(const char* module, int64_t n_embd, int64_t n_head) {
  TORCH_CHECK(n_embd > 0 && n_head > 0 && n_embd % n_head == 0, module,
              ": expected n_embd to be a multiple of n_head, both above 0, got n_embd ", n_embd,
              " and n_head ", n_head);
}

void check_dropout(const char* module, double dropout) {
  TORCH_CHECK(dropout >= 0.0 && dropout <= 1.0, module,
              ": expected a dropout probability in [0, 1], got ", dropout);
}

void check_scale(const char* module, const std::optional<double>& scale) {
  TORCH_CHECK(!scale || std::isfinite(*scale), module, ": expected a finite scale, got ",
              scale.value_or(0.0));
}

void check_gelu(const char* module, const std::string& approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh", module,
              ": expected gelu_approximate \"none\" or \"tanh\", got \"", approximate, "\"");
}

void check_input(const char* function, const at::Tensor& x, int64_t n_embd,
                 const at::Tensor& weight) {
  TORCH_CHECK(x.defined(), function, ": expected x (..., T, C), got an undefined tensor");
  TORCH_CHECK(x.dim() >= 2 && x.size(-1) == n_embd, function,
              ": expected x (..., T, C) with C = n_embd = ", n_embd, ", got ", x.sizes());
  TORCH_CHECK(fit_together(x, weight), function, ": x and the weights must share a dtype, got x ",
              x.scalar_type(), " and weights ", weight.scalar_type());
  TORCH_CHECK(x.device() == weight.device(), function,
              ": x and the weights must be on one device, got x ", x.device(), " and weights ",
              weight.device());
}

void check_token_ids(const char* function, const at::Tensor& ids, int64_t vocab_size,
                     const at::Tensor& weight) {
  TORCH_CHECK(ids.defined(), function, ": expected token ids (B, T), got an undefined tensor");
  TORCH_CHECK(ids.dim() == 2, function, ": expected token ids (B, T), got ", ids.sizes());
  TORCH_CHECK(ids.scalar_type() == at::kLong, function,
              ": expected token ids of int64 (Long), got ", ids.scalar_type());
  TORCH_CHECK(ids.device() == weight.device(), function,
              ": token ids and the weights must be on one device, got ids ", ids.device(),
              " and weights ", weight.device());
  if (!ids.is_cpu()) return;
  const auto values = ids.accessor<int64_t, 2>();
  for (int64_t b = 0; b < values.size(0); ++b) {
    for (int64_t t = 0; t < values.size(1); ++t) {
      TORCH_CHECK(values[b][t] >= 0 && values[b][t] < vocab_size, function,
                  ": expected token ids from 0 to vocab_size - 1 = ", vocab_size - 1, ", got ",
                  values[b][t], " at [", b, ", ", t, "]");
    }
  }
}

}  // namespace mini::detail
