// SPDX-License-Identifier: MIT
// Attention by the fused CPU kernel: splits tensors into heads and units, and runs them on threads.
#pragma once

#include "mini/attention.h"

namespace mini::detail {

/// Why the fused kernel cannot compute this call, or null if it can.
/// The answer does not depend on sizes: the kernel accepts every shape of the contract.
/// Throws if the kernel could run, but MINI_SIMD_TARGET is invalid.
const char* fused_attention_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionOptions& options);

/// The output, and what the backward pass needs.
struct FusedOutput {
  at::Tensor output;  ///< (..., Tq, d_v), allocated by `empty_in_layout_of(q, ...)`
  /// The row maxima, then the base-2 logarithms of the row sums.  (..., 2, Tq) float32
  /// Undefined unless `keep_stats`.
  at::Tensor softmax_stats;
  /// For half inputs, the output in float32 before rounding. The backward pass needs these digits.
  /// Undefined for float32 inputs, or if not kept.
  at::Tensor exact_output;
};
FusedOutput fused_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options, bool keep_stats);

/// Each gradient has the layout of its tensor. If `packed` and q, k and v are packed
/// (packed_heads.h), the gradients are views of one packed tensor, so joining them copies nothing.
struct FusedGradients {
  at::Tensor dq, dk, dv;
};
FusedGradients fused_attention_backward(const at::Tensor& d_output, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const FusedOutput& forward, const AttentionOptions& options,
                                        bool packed);

/// An uninitialised tensor with the layout of `like` if it has the same sizes and contiguous rows,
/// otherwise contiguous.
at::Tensor empty_in_layout_of(const at::Tensor& like, c10::SymIntArrayRef sizes,
                              at::ScalarType dtype);

}  // namespace mini::detail
