// SPDX-License-Identifier: MIT
// Runs the kernels on each instruction set that this processor supports.
#pragma once

#include "kernels/attention_kernel.h"
#include "support/support.h"

namespace mini::test {

/// Runs `body` once on each instruction set.
template <class Body>
void for_each_target(const Body& body) {
  for (const int64_t target : kernels::supported_targets()) {
    kernels::set_target(target);
    INFO(kernels::target_name());
    body();
  }
  kernels::set_target(0);
}

}  // namespace mini::test
