// SPDX-License-Identifier: MIT
// The border of the fused attention kernel: plain numbers and pointers go in. No tensor and no SIMD
// crosses it.
//
// A call works on one head, so nothing here knows of batches; who calls it walks over the heads and
// hands units of work to threads. Functions neither allocate nor throw, and keep no state: a unit's
// result depends on its arguments alone, whichever thread runs it.
//
// Shapes  Tq queries, Tk keys, hs = head_size = d_k, d_v = value_size.
#pragma once

#include <cstdint>
#include <vector>

#include "mini/export.h"

namespace mini::kernels {

/// Row i starts at data + i * stride; its elements are adjacent.
struct ConstRows {
  const float* data = nullptr;
  int64_t stride = 0;
};
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
};

/// Added to the scaled scores, or a choice of visible keys. Absent if both pointers are null.
/// Entry (i, j) is at i * row_stride + j * key_stride; either stride may be 0.
struct Mask {
  const float* added = nullptr;   ///< -infinity hides a key.
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
  /// Query i sees keys j <= i + diagonal; `keys` hides none.
  int64_t diagonal = 0;
};

/// Where the forward pass writes.
struct Forward {
  Rows output;  ///< (Tq, d_v)
  /// The softmax of each row, for the backward pass, in base 2: the largest score m, and the
  /// logarithm of the sum of 2^(score - m). 0 and +infinity where nothing is visible. Two numbers,
  /// since one sum of them would lose the logarithm beside a large score. (Tq), may both be null.
  float* row_max = nullptr;
  float* log_sum = nullptr;
};

/// What the backward pass reads besides the head, and where it writes.
struct Backward {
  ConstRows output, d_output;  ///< (Tq, d_v)
  const float* row_max = nullptr;
  const float* log_sum = nullptr;
  Rows dq, dk, dv;  ///< (Tq, hs), (Tk, hs), (Tk, d_v)
  /// Add to dq instead of overwriting it: for every call on the same dq but the first.
  bool add_to_dq = false;
  /// Add to dk and dv instead of overwriting them: for query heads that share a key head.
  bool add_to_dk_dv = false;
};

/// Rows of queries in a unit of the forward pass.
inline constexpr int64_t kQueryBlock = 256;
/// Most queries that `decode` takes.
inline constexpr int64_t kDecodeQueries = 4;

/// Rows [first_query, first_query + queries) of the output, at most kQueryBlock of them.
void forward(const HeadInputs& head, const Forward& result, int64_t first_query, int64_t queries,
             float* scratch);

/// The whole output for at most kDecodeQueries queries, one pass over keys and values for each:
/// reading them is the cost.
void decode(const HeadInputs& head, const Forward& result, float* scratch);

/// What keys [first_key, first_key + keys) contribute: their rows of dk and dv, and their part of
/// the dq of all queries.
void backward(const HeadInputs& head, const Backward& gradients, int64_t first_key, int64_t keys,
              float* scratch);

/// All gradients at once for at most kDecodeQueries queries.
void decode_backward(const HeadInputs& head, const Backward& gradients, float* scratch);

/// Floats of scratch that each needs, aligned to 64 bytes. Does not grow with the number of
/// queries; that of the decode functions grows with the number of keys.
int64_t forward_scratch(const HeadInputs& head);
int64_t decode_scratch(const HeadInputs& head);
int64_t backward_scratch(const HeadInputs& head);

/// Name of the instruction set in use, such as "AVX3".
MINI_API const char* target_name();

// For tests and benchmarks.

/// The instruction sets that this processor runs, the best one first.
MINI_API std::vector<int64_t> supported_targets();
/// Use one of them from now on; 0 is again the best.
MINI_API void set_target(int64_t target);
/// out[i] = 2^x[i] as the kernel computes it.
MINI_API void exp2(const float* x, int64_t n, float* out);
/// Does nothing but multiply-adds, on one core as fast as it can; returns how many operations.
MINI_API double multiply_adds(int64_t rounds);

}  // namespace mini::kernels
