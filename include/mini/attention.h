// SPDX-License-Identifier: MIT
// Scaled dot-product attention: the formula, its options, its steps.
//
// Paper   Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
// Shapes  B batch, T sequence (Tq queries, Tk keys), C = n_embd, nh = n_head, hs = head_size = d_k.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "mini/export.h"

namespace mini {

/// Which keys a query may look at, by position.
enum class Causal {
  kNone,        ///< All of them.
  kUpperLeft,   ///< Query i sees keys j <= i: the first query is aligned with the first key.
  kLowerRight,  ///< Query i sees keys j <= i + (Tk - Tq): the last query with the last key.
};

/// How attention is computed. Designated initialisers name what differs from the default:
/// `scaled_dot_product_attention(q, k, v, {.scale = 1.0, .causal = Causal::kLowerRight})`.
struct AttentionOptions {
  /// Broadcasts to (..., Tq, Tk): of at most two dimensions, or of as many as q, each 1 or full.
  /// bool: true where a query may attend to a key. Floating: added to the scaled scores; -infinity
  /// hides a key, and gradients flow to it.
  std::optional<at::Tensor> mask = std::nullopt;
  /// Factor on the scores; unset is 1 / sqrt(d_k), 1 removes the division.
  std::optional<double> scale = std::nullopt;
  /// Combines with a mask: a key is seen where both allow it.
  Causal causal = Causal::kNone;
  /// Probability of zeroing a weight, in [0, 1]; the others grow by 1 / (1 - dropout). Acts only
  /// when `training`.
  double dropout = 0.0;
  bool training = false;
  /// Let consecutive query heads share a key and value head: dimension -3 of q is a multiple of
  /// that of k and v.
  bool grouped_queries = false;
  /// Source of randomness for dropout; unset is LibTorch's global generator.
  std::optional<at::Generator> generator = std::nullopt;
};

/// The equation, step by step.
struct AttentionSteps {
  at::Tensor scores;         ///< q k^T                               (..., Tq, Tk)
  at::Tensor scaled_scores;  ///< scale * scores, before any mask     (..., Tq, Tk)
  at::Tensor weights;        ///< after mask and softmax, before dropout (..., Tq, Tk)
  at::Tensor output;         ///< weights v, after dropout            (..., Tq, d_v)
};

/// Which implementation computes a call, and what ruled the fused one out.
struct AttentionPath {
  bool fused = false;
  std::string reason;
};

/// output = softmax(scale * q k^T + mask) v, row by row.
///
/// q (..., Tq, d_k), k (..., Tk, d_k), v (..., Tk, d_v) -> (..., Tq, d_v), laid out in memory
/// contiguously or, where d_v = d_k, as q is.
/// Leading dimensions are equal; none is broadcast. Any strides; B, Tq and Tk may be 0.
///
/// float32, float64, bfloat16 or float16, the same for q, k and v; half types are computed in
/// float32. A row of weights sums to 1; where a row sees no key its weights, output and gradients
/// are 0, never NaN. Large scores are safe, as if each row's maximum were subtracted. NaN or
/// infinity shows in the rows that see it; a hidden key never touches a row of the output; for a
/// hidden value nothing is promised (0 * NaN is NaN).
///
/// Gradients flow to q, k, v and a floating mask, to second order.
/// Throws c10::Error if dtypes, devices or shapes disagree, before any work is done.
MINI_API at::Tensor scaled_dot_product_attention(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v,
                                                 const AttentionOptions& options = {});

/// The same equation with every step kept: weights v == output where dropout does not act.
///
/// Steps are float32 for half inputs, the output in the inputs' dtype. Arguments, gradients and
/// errors as above; memory grows with Tq * Tk.
MINI_API AttentionSteps attention_steps(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const AttentionOptions& options = {});

/// Which path `scaled_dot_product_attention` takes for these arguments; throws as it does.
MINI_API AttentionPath attention_path(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const AttentionOptions& options = {});

}  // namespace mini
