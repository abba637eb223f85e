// SPDX-License-Identifier: MIT
#include "common/keep_memory.h"

#include <malloc.h>

namespace mini::app {

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace mini::app
