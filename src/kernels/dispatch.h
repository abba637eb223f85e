// SPDX-License-Identifier: MIT
// Calls a kernel for the instruction set of targets.h. Highway's own HWY_DYNAMIC_DISPATCH uses one
// choice for the whole process, which other libraries share.
#pragma once

// clang-format off
#include "kernels/disabled_targets.h"  // before any file of Highway
#include "hwy/highway.h"
// clang-format on

namespace mini::kernels {

const hwy::ChosenTarget& chosen_target();

}  // namespace mini::kernels

// MINI_DISPATCH(Function)(arguments...), after HWY_EXPORT(Function).
#if HWY_IDE || ((HWY_TARGETS & (HWY_TARGETS - 1)) == 0)  // only one instruction set is compiled
#define MINI_DISPATCH(Function) HWY_STATIC_DISPATCH(Function)
#else
#define MINI_DISPATCH(Function) \
  (*HWY_DISPATCH_TABLE(Function)[::mini::kernels::chosen_target().GetIndex()])
#endif
