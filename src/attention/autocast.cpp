// SPDX-License-Identifier: MIT
#include "attention/autocast.h"

#include <ATen/autocast_mode.h>

namespace mini::detail {

bool autocast_enabled(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const c10::DeviceType device = tensor.device().type();
  return at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
}

at::Tensor autocast(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const c10::DeviceType device = tensor.device().type();
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

}  // namespace mini::detail
