// SPDX-License-Identifier: MIT
#include "mini/diagnostics.h"

#include <ATen/ATen.h>

#include <cmath>

namespace mini {
namespace {

void check_rows(const char* function, const at::Tensor& rows) {
  TORCH_CHECK(rows.defined() && rows.dim() >= 1 && at::isFloatingType(rows.scalar_type()), function,
              ": expected rows (..., T) of a floating dtype, got ",
              rows.defined() ? c10::str(rows.scalar_type(), " ", rows.sizes()) : "undefined");
}

}  // namespace

at::Tensor weight_entropy(const at::Tensor& weights) {
  check_rows("weight_entropy", weights);
  return at::special_entr(weights).sum(-1);
}

at::Tensor normalized_weight_entropy(const at::Tensor& weights) {
  check_rows("normalized_weight_entropy", weights);
  const auto T = static_cast<double>(weights.size(-1));
  return T > 1.0 ? weight_entropy(weights) / std::log(T) : at::zeros_like(weights.sum(-1));
}

at::Tensor peak_weight(const at::Tensor& weights) {
  check_rows("peak_weight", weights);
  TORCH_CHECK(weights.size(-1) > 0, "peak_weight: expected rows of at least one weight, got ",
              weights.sizes());
  return weights.amax(-1);
}

at::Tensor score_spread(const at::Tensor& scores) {
  check_rows("score_spread", scores);
  return scores.size(-1) > 1 ? scores.std(-1) : at::zeros_like(scores.sum(-1));
}

at::Tensor softmax_slope(const at::Tensor& weights) {
  check_rows("softmax_slope", weights);
  return weights * (1.0 - weights);
}

}  // namespace mini
