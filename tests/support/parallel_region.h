// SPDX-License-Identifier: MIT
// A parallel region of LibTorch's OpenMP runtime. Users may call the library in one.
#pragma once

#include <cstdint>
#include <functional>

namespace mini::test {

/// Calls body(i) for each i in [0, n), on LibTorch's threads.
void in_parallel_region(int64_t n, const std::function<void(int64_t)>& body);

}  // namespace mini::test
