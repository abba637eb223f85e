// SPDX-License-Identifier: MIT
// Attention as loops over the formula, in float64: the reference of the conformance checks.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// The output and its gradients, float64 on the CPU.
struct FormulaResult {
  at::Tensor output;      ///< (..., Tq, d_v)
  at::Tensor dq, dk, dv;  ///< of the shapes of q, k and v
  at::Tensor dscores;     ///< gradient of scaled_scores + mask  (..., Tq, Tk)
};

/// Arguments as in `scaled_dot_product_attention`, without dropout. `upstream` (..., Tq, d_v) is
/// the gradient of the output.
FormulaResult attention_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options, const at::Tensor& upstream);

}  // namespace mini::detail
