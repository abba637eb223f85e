// SPDX-License-Identifier: MIT
// Attention under LibTorch's autocast.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace mini::detail {

/// Whether autocast is enabled for the tensor's device. False for an undefined tensor.
bool autocast_enabled(const at::Tensor& tensor);

/// `tensor` in the dtype of autocast. Tensors that autocast ignores, such as float64 and integers,
/// are returned unchanged.
at::Tensor autocast(const at::Tensor& tensor);

/// Returns function(q, k, v). Under autocast, q, k and v are cast first, as LibTorch casts them for
/// its own attention, and the function runs without autocast: half types are computed in float32.
template <typename Function>
auto with_autocast(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const Function& function) {
  if (!autocast_enabled(q)) return function(q, k, v);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return function(autocast(q), autocast(k), autocast(v));
}

}  // namespace mini::detail
