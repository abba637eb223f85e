// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>

#include "kernels/targets.h"

namespace mini::detail {

/// Throws if MINI_SIMD_TARGET is set to an instruction set that the processor does not support.
/// Every function that runs a kernel calls it first.
inline void check_kernel_target() {
  const char* error = kernels::target_error();
  TORCH_CHECK(error == nullptr, error);
}

}  // namespace mini::detail
