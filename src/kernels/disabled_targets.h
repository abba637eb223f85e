// SPDX-License-Identifier: MIT
// Instruction sets that the kernels do not use. Include this before any file of Highway.
#pragma once

// The kernels keep arrays of vectors in registers. The size of an SVE vector is unknown when the
// kernels are compiled, so arrays of SVE vectors do not exist. Processors with SVE also have NEON.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
