// The largest memory allocation. It must stay small when hostile files are read.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace mini::test {

/// The largest size passed to `operator new` on this thread since the caller last set it to 0. The
/// operator is replaced for the whole program, so the allocations of libraries count too.
std::size_t& largest_allocation();

}  // namespace mini::test
