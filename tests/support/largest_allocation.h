// How much memory code asks for at once: what a reader of hostile files must keep small.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace mini::test {

/// The largest single `operator new` of this thread since the caller last set it to 0. The operator
/// is replaced for the whole program, so that the libraries' allocations count too.
std::size_t& largest_allocation();

}  // namespace mini::test
