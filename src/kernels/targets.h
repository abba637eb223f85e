// SPDX-License-Identifier: MIT
// The instruction set that the kernels use, by Highway's name, such as "AVX2".
//
// By default it is the best one that the processor supports. The environment variable
// MINI_SIMD_TARGET selects another one. The variable is read once, before the first kernel runs.
// All functions may be called by several threads.
#pragma once

#include <string>
#include <vector>

#include "mini/export.h"

namespace mini::kernels {

/// The instruction sets that this processor supports, the best one first.
MINI_API std::vector<std::string> supported_targets();

/// The instruction set in use.
MINI_API std::string target_name();

/// Uses this instruction set from now on. An empty name restores the default. If the processor does
/// not support it, returns false and changes nothing.
MINI_API bool set_target(const std::string& name);

/// The message if MINI_SIMD_TARGET is set to a name that is not supported, otherwise null. In that
/// case the kernels use the best instruction set, so callers must check before they run a kernel.
MINI_API const char* target_error();

}  // namespace mini::kernels
