// SPDX-License-Identifier: MIT
// Chooses the path of a call. Calls go down from here:
//
//   attention.cpp -> fused_operator.cpp -> fused_attention.cpp -> kernels/   the fused kernel
//                 -> composite_attention.cpp                                 everything else
#include "mini/attention.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <c10/core/GradMode.h>

#include "attention/attention_checks.h"
#include "attention/autocast.h"
#include "attention/composite_attention.h"
#include "attention/fused_attention.h"
#include "attention/fused_operator.h"

namespace mini {
namespace {

// Whether the call must go through LibTorch's dispatcher. The dispatcher records the call for
// autograd and unwraps tensors that have no memory of their own (tracing, vmap).
bool needs_dispatcher(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionOptions& options) {
  const bool needs_gradient =
      c10::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  return needs_gradient || at::isTensorSubclassLike(q) || at::isTensorSubclassLike(k) ||
         at::isTensorSubclassLike(v) || (options.mask && at::isTensorSubclassLike(*options.mask));
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionOptions& options) {
  detail::check_attention_arguments("scaled_dot_product_attention", q, k, v, options);
  if (detail::fused_attention_obstacle(q, k, v, options) != nullptr) {
    return detail::composite_attention(q, k, v, options).output;
  }
  if (needs_dispatcher(q, k, v, options)) return detail::dispatch_fused_attention(q, k, v, options);
  return detail::fused_attention_forward(q, k, v, options, /*keep_stats=*/false).output;
}

}  // namespace

at::Tensor detail::ScaledDotProductAttention::operator()(const at::Tensor& q, const at::Tensor& k,
                                                         const at::Tensor& v,
                                                         const AttentionOptions& options) const {
  return with_autocast(q, k, v, [&](const auto&... qkv) { return attend(qkv..., options); });
}

AttentionSteps attention_steps(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& options) {
  return detail::with_autocast(q, k, v, [&](const auto&... qkv) {
    detail::check_attention_arguments("attention_steps", qkv..., options);
    return detail::composite_attention(qkv..., options);
  });
}

AttentionPath attention_path(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options) {
  return detail::with_autocast(q, k, v, [&](const auto&... qkv) -> AttentionPath {
    detail::check_attention_arguments("attention_path", qkv..., options);
    const char* obstacle = detail::fused_attention_obstacle(qkv..., options);
    return {.fused = obstacle == nullptr, .reason = obstacle == nullptr ? "" : obstacle};
  });
}

}  // namespace mini
