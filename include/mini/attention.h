// SPDX-License-Identifier: MIT
// Scaled dot-product attention: the formula, its options and its steps.
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

/// Which keys a query may attend to, by position.
enum class Causal {
  kNone,        ///< Every query sees all keys.
  kUpperLeft,   ///< Query i sees keys j <= i. The first query is aligned with the first key.
  kLowerRight,  ///< Query i sees keys j <= i + (Tk - Tq). The last query and key are aligned.
};

/// Options of attention. Designated initialisers set the ones that differ from the defaults:
/// `scaled_dot_product_attention(q, k, v, {.scale = 1.0, .causal = Causal::kLowerRight})`.
struct AttentionOptions {
  /// A bool mask is true where the query may attend to the key. A floating mask is added to the
  /// scaled scores; -infinity hides the key, and gradients flow to the mask.
  /// The mask broadcasts to (..., Tq, Tk). It has at most two dimensions, or as many as q. Each
  /// dimension is 1 or equals the corresponding dimension of the scores.
  std::optional<at::Tensor> mask = std::nullopt;
  /// Factor on the scores; finite. Unset means 1 / sqrt(d_k); 1 disables scaling.
  std::optional<double> scale = std::nullopt;
  /// Hides keys by position. A key is visible if both `causal` and `mask` allow it.
  Causal causal = Causal::kNone;
  /// Probability of zeroing a weight, in [0, 1]. The remaining weights are multiplied by
  /// 1 / (1 - dropout). Dropout is active only if `training` is true.
  double dropout = 0.0;
  bool training = false;
  /// If true, consecutive query heads share a key/value head: q.size(-3) must be a multiple of
  /// k.size(-3).
  bool grouped_queries = false;
  /// Random number generator for dropout. Unset means LibTorch's global generator.
  std::optional<at::Generator> generator = std::nullopt;
};

/// The steps of the formula, in order.
struct AttentionSteps {
  at::Tensor scores;         ///< q k^T                                         (..., Tq, Tk)
  at::Tensor scaled_scores;  ///< scale * scores                                (..., Tq, Tk)
  at::Tensor weights;        ///< softmax(scaled_scores + mask), before dropout (..., Tq, Tk)
  at::Tensor output;         ///< dropout(weights) v                            (..., Tq, d_v)
};

/// The implementation used for a call.
struct AttentionPath {
  bool fused = false;  ///< Whether the fused CPU kernel is used.
  std::string reason;  ///< Why the fused kernel cannot be used; empty if `fused`.
};

namespace detail {
struct ScaledDotProductAttention {
  MINI_API at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options = {}) const;
};
}  // namespace detail

/// output = softmax(scale * q k^T + mask) v, row by row.
///
/// q (..., Tq, d_k), k (..., Tk, d_k), v (..., Tk, d_v) -> (..., Tq, d_v)
/// The leading dimensions of q, k and v must be equal; they are not broadcast. If `grouped_queries`
/// is true, the numbers of heads may differ. B, Tq and Tk may be 0. Inputs may have any strides. If
/// d_v = d_k, the fused kernel returns the output in q's layout, provided that q's rows are
/// contiguous. Otherwise the output is contiguous.
///
/// q, k and v must share a dtype: float32, float64, bfloat16 or float16. The half types, bfloat16
/// and float16, are computed in float32.
///
/// Each row of weights sums to 1. If a row sees no key, its weights, output and gradients are 0,
/// never NaN. Finite scores of any magnitude do not overflow: the softmax behaves as if the row
/// maximum were subtracted first. NaN and infinity propagate to every row that sees them. The row
/// of k of a hidden key never affects the output. Its row of v is multiplied by weight 0; if that
/// row holds NaN or infinity, the output may be NaN, since 0 * NaN is NaN.
///
/// Gradients flow to q, k, v and a floating mask, and may be differentiated again.
/// Under autocast, q, k and v are cast to its dtype, except float64.
/// Throws c10::Error before any work if dtypes, devices, shapes or options are invalid.
///
/// This is a function object: `scaled_dot_product_attention(q, k, v, options)`. A function would be
/// ambiguous with `at::scaled_dot_product_attention` in a call without `mini::`, because the
/// arguments make the compiler search `at`, too. If `at` or `torch` is also imported by a using
/// directive, write `mini::scaled_dot_product_attention`.
///
/// The kernels of this library (attention, layer norm, GELU) use the best instruction set that the
/// processor supports. The environment variable MINI_SIMD_TARGET selects another one, such as AVX2,
/// SSE4 or SCALAR. It is read once, before the first kernel runs. If its value is not supported,
/// every call that needs a kernel throws an error that lists the supported names.
inline constexpr detail::ScaledDotProductAttention scaled_dot_product_attention;

/// Computes the same formula and returns every step.
///
/// weights @ v equals the output unless dropout is active. For half inputs the steps are float32
/// and the output has the inputs' dtype. Arguments, gradients and errors are those of
/// `scaled_dot_product_attention`. Memory grows with Tq * Tk.
MINI_API AttentionSteps attention_steps(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const AttentionOptions& options = {});

/// Returns the path that `scaled_dot_product_attention` takes for these arguments. Throws if that
/// function would.
MINI_API AttentionPath attention_path(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const AttentionOptions& options = {});

}  // namespace mini
