// SPDX-License-Identifier: MIT
// Runs the kernels on each instruction set that this processor supports.
#pragma once

#include "kernels/targets.h"
#include "support/support.h"

namespace mini::test {

/// Runs `body` once on each instruction set.
template <class Body>
void for_each_target(const Body& body) {
  for (const std::string& target : kernels::supported_targets()) {
    kernels::set_target(target);
    INFO(target);
    body();
  }
  kernels::set_target("");
}

}  // namespace mini::test
