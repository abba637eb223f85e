// SPDX-License-Identifier: MIT
// LibTorch's global modes, for the length of a test.
#pragma once

#include <ATen/autocast_mode.h>

#include "support/support.h"

namespace mini::test {

/// Autocast on the CPU while an object exists.
class Autocast {
 public:
  explicit Autocast(at::ScalarType dtype = at::kBFloat16)
      : dtype_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, dtype_);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::ScalarType dtype_;
};

}  // namespace mini::test
