// SPDX-License-Identifier: MIT
#include "support/parallel_region.h"

#include <ATen/Parallel.h>

namespace mini::test {

void in_parallel_region(int64_t n, const std::function<void(int64_t)>& body) {
  at::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace mini::test
