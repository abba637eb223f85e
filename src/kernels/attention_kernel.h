// SPDX-License-Identifier: MIT
// The interface of the fused attention kernel: plain numbers and pointers, no tensors and no SIMD.
//
// Each call computes part of one head. The caller loops over batch and heads and distributes the
// calls to threads. The functions do not allocate, do not throw and keep no state: a result depends
// only on the arguments, not on the thread.
//
// Shapes  Tq queries, Tk keys, hs = head_size = d_k, d_v = value_size.
#pragma once

#include <cstdint>

#include "mini/export.h"

namespace mini::kernels {

/// Row i starts at data + i * stride. Its elements are contiguous.
struct ConstRows {
  const float* data = nullptr;
  int64_t stride = 0;
};
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
};

/// A floating mask (`added`), a boolean mask (`visible`), or no mask if both pointers are null.
/// Entry (i, j) is at i * row_stride + j * key_stride. Either stride may be 0.
struct Mask {
  const float* added = nullptr;   ///< Added to the scaled scores; -infinity hides a key.
  const bool* visible = nullptr;  ///< false hides a key.
  int64_t row_stride = 0;
  int64_t key_stride = 0;

  bool IsPresent() const { return added != nullptr || visible != nullptr; }
};

/// One head of attention: output = softmax(scale * q k^T + mask) v.
struct HeadInputs {
  ConstRows q, k, v;  ///< (Tq, hs), (Tk, hs), (Tk, d_v)
  Mask mask;          ///< (Tq, Tk)
  int64_t queries = 0, keys = 0, head_size = 0, value_size = 0;
  float scale = 1.0F;
  /// Query i sees keys j <= i + diagonal. diagonal = keys hides no key.
  int64_t diagonal = 0;
};

/// Where the forward pass writes.
struct Forward {
  Rows output;  ///< (Tq, d_v)
  /// Statistics of each row's softmax for the backward pass, in base 2: the row maximum m and the
  /// logarithm of the sum of 2^(score - m). For a row that sees no key they are 0 and +infinity.
  /// They are kept apart because their sum would lose the logarithm if m is large.
  /// (Tq); may both be null.
  float* row_max = nullptr;
  float* log_sum = nullptr;
};

/// What the backward pass reads in addition to the head, and where it writes.
struct Backward {
  ConstRows output, d_output;  ///< (Tq, d_v)
  const float* row_max = nullptr;
  const float* log_sum = nullptr;
  Rows dq, dk, dv;  ///< (Tq, hs), (Tk, hs), (Tk, d_v)
  /// Add to dq instead of overwriting it. Set it for every call on the same dq but the first.
  bool add_to_dq = false;
  /// Add to dk and dv instead of overwriting them. Set it for every query head of a group but the
  /// first.
  bool add_to_dk_dv = false;
};

/// Maximum number of queries per call of `forward`.
inline constexpr int64_t kQueryBlock = 256;
/// Maximum number of queries of `decode` and `decode_backward`.
inline constexpr int64_t kDecodeQueries = 4;

/// Computes rows [first_query, first_query + queries) of the output; queries <= kQueryBlock.
void forward(const HeadInputs& head, const Forward& result, int64_t first_query, int64_t queries,
             float* scratch);

/// Computes the whole output for at most kDecodeQueries queries. Each query makes one pass over the
/// keys and values; reading them dominates the time.
void decode(const HeadInputs& head, const Forward& result, float* scratch);

/// Computes what keys [first_key, first_key + keys) contribute: their rows of dk and dv, and their
/// terms of dq for all queries.
void backward(const HeadInputs& head, const Backward& gradients, int64_t first_key, int64_t keys,
              float* scratch);

/// Computes all gradients for at most kDecodeQueries queries.
void decode_backward(const HeadInputs& head, const Backward& gradients, float* scratch);

/// Size of `scratch` in floats. `scratch` must be aligned to 64 bytes. The size does not depend on
/// the number of queries; for the decode functions it grows with the number of keys.
int64_t forward_scratch(const HeadInputs& head);
int64_t decode_scratch(const HeadInputs& head);
int64_t backward_scratch(const HeadInputs& head);

// For tests and benchmarks.

/// out[i] = 2^x[i] as the kernel computes it.
MINI_API void exp2(const float* x, int64_t n, float* out);
/// Runs only multiply-adds, as fast as one core can. Returns the number of operations.
MINI_API double multiply_adds(int64_t rounds);

}  // namespace mini::kernels
