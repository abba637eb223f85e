// SPDX-License-Identifier: MIT
// Attention through the fused CPU kernel: from tensors to heads, units and threads.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// What rules the fused kernel out for these arguments, in words; null if nothing does.
/// Reads kinds of tensors and options, no sizes: any shape that the contract allows is taken.
const char* fused_attention_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionOptions& options);

/// One pass forward, and what the backward pass needs of it.
struct FusedOutput {
  at::Tensor output;  ///< (..., Tq, d_v), laid out in memory like q where d_v = d_k
  /// The row maxima, then the logarithms of the row sums, in base 2.  (..., 2, Tq) float32
  /// Undefined unless kept.
  at::Tensor softmax_stats;
};
FusedOutput fused_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, bool keep_stats);

/// One pass backward; each gradient is laid out in memory like its tensor. With `packed` they share
/// one piece of memory where q, k and v do (packed_heads.h), so that joining them copies nothing.
struct FusedGradients {
  at::Tensor dq, dk, dv;
};
FusedGradients fused_attention_backward(const at::Tensor& d_output, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const FusedOutput& forward, const AttentionOptions& options,
                                        bool packed);

/// A tensor of `sizes` for a result that belongs to `like`: laid out like it if the sizes agree.
at::Tensor empty_beside(const at::Tensor& like, c10::SymIntArrayRef sizes, at::ScalarType dtype);

}  // namespace mini::detail
