// SPDX-License-Identifier: MIT
#include "attention/composite_attention.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <limits>

namespace mini::detail {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::ScalarType accumulation_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

// Sizes are `SymInt`s. They are symbols while torch.compile traces a function for any T.

// Repeats each key or value head, once for each query head that shares it.
at::Tensor repeat_heads(const at::Tensor& heads, const at::Tensor& q) {
  const c10::SymInt group = heads.sym_size(-3) == 0 ? 1 : q.sym_size(-3) / heads.sym_size(-3);
  return group == 1 ? heads : heads.repeat_interleave_symint(group, -3);
}

// True where `causal` hides key j from query i.  (Tq, Tk)
at::Tensor hidden_by_causality(Causal causal, const c10::SymInt& Tq, const c10::SymInt& Tk,
                               at::Device device) {
  const c10::SymInt first_hidden = causal == Causal::kLowerRight ? 1 + Tk - Tq : 1;
  return at::ones_symint({Tq, Tk}, at::device(device).dtype(at::kBool)).triu_symint(first_hidden);
}

// True where a key is hidden from a query. Broadcasts to (..., Tq, Tk).
// Undefined if the options hide nothing.
at::Tensor hidden_positions(const at::Tensor& logits, const AttentionOptions& options) {
  at::Tensor hidden;
  if (options.mask) {
    const at::Tensor& mask = *options.mask;
    hidden = mask.scalar_type() == at::kBool ? mask.logical_not() : mask.detach().eq(-kInfinity);
  }
  if (options.causal != Causal::kNone) {
    const at::Tensor later = hidden_by_causality(options.causal, logits.sym_size(-2),
                                                 logits.sym_size(-1), logits.device());
    hidden = hidden.defined() ? hidden.logical_or(later) : later;
  }
  return hidden;
}

// Softmax of each row over its visible positions.  (..., Tq, Tk) -> (..., Tq, Tk)
at::Tensor visible_softmax(const at::Tensor& scaled_scores, const AttentionOptions& options) {
  at::Tensor logits = scaled_scores;
  if (options.mask && options.mask->scalar_type() != at::kBool) {
    logits = logits + mask_as(*options.mask, logits.scalar_type());
  }
  const at::Tensor hidden = hidden_positions(logits, options);
  if (!hidden.defined()) {
    return at::softmax(logits, -1);
  }
  // A row of only -infinity would be 0 / 0 in the softmax, and its gradients of any order would be
  // NaN. Replace such a row by zeros, and set its weights to 0 afterwards.
  const at::Tensor nothing_visible = hidden.all(-1, /*keepdim=*/true);
  logits = logits.masked_fill(hidden, -kInfinity).masked_fill(nothing_visible, 0.0);
  return at::softmax(logits, -1).masked_fill(nothing_visible, 0.0);
}

at::Tensor dropout(const at::Tensor& weights, const AttentionOptions& options) {
  if (!options.training || options.dropout == 0.0) {
    return weights;
  }
  const double keep_probability = 1.0 - options.dropout;
  at::Tensor keep = at::empty_like(weights).bernoulli_(keep_probability, options.generator);
  if (keep_probability > 0.0) {  // if p = 1, every weight is dropped and none needs scaling
    keep.div_(keep_probability);
  }
  return weights * keep;
}

}  // namespace

double attention_scale(const at::Tensor& q, const AttentionOptions& options) {
  if (options.scale) {
    return *options.scale;
  }
  const int64_t d_k = q.sym_size(-1).guard_int(__FILE__, __LINE__);
  return 1.0 / std::sqrt(static_cast<double>(d_k));
}

at::Tensor mask_as(const at::Tensor& mask, at::ScalarType dtype) {
  if (mask.scalar_type() != at::kDouble || dtype == at::kDouble) {
    return mask.to(dtype);
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  return at::where(mask.isinf(), mask, mask.clamp(-kLargest, kLargest)).to(dtype);
}

AttentionSteps composite_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOptions& options) {
  // Autocast would round the products to a half type.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = accumulation_dtype(q.scalar_type());
  const at::Tensor queries = q.to(dtype);
  at::Tensor keys = k.to(dtype);
  at::Tensor values = v.to(dtype);
  if (options.grouped_queries) {
    keys = repeat_heads(keys, q);
    values = repeat_heads(values, q);
  }

  AttentionSteps steps;
  steps.scores = at::matmul(queries, keys.transpose(-2, -1));        // (..., Tq, Tk)
  steps.scaled_scores = steps.scores * attention_scale(q, options);  // (..., Tq, Tk)
  steps.weights = visible_softmax(steps.scaled_scores, options);     // (..., Tq, Tk)
  steps.output =
      at::matmul(dropout(steps.weights, options), values).to(q.scalar_type());  // (..., Tq, d_v)
  return steps;
}

}  // namespace mini::detail
