// SPDX-License-Identifier: MIT
// A parallel region of LibTorch's OpenMP, as the code that calls this library may be in.
#pragma once

#include <cstdint>
#include <functional>

namespace mini::test {

/// body(i) for each i below n, on LibTorch's threads.
void in_parallel_region(int64_t n, const std::function<void(int64_t)>& body);

}  // namespace mini::test
