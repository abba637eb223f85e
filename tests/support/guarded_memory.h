// SPDX-License-Identifier: MIT
// Tensors that end at a page that cannot be accessed.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

#include "support/support.h"

namespace mini::test {

/// A contiguous copy of `values`. An access to the first byte after it ends the program.
inline at::Tensor guarded(const at::Tensor& values) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = values.nbytes(), size = (bytes + page - 1) / page * page;
  void* memory = ::mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        /*fd=*/-1, 0);
  if (memory == MAP_FAILED || ::mprotect(static_cast<char*>(memory) + size, page, PROT_NONE) != 0) {
    throw std::system_error(errno, std::generic_category(), "no guarded memory");
  }
  const auto unmap = [memory, size, page](void*) { ::munmap(memory, size + page); };
  return at::from_blob(static_cast<char*>(memory) + size - bytes, values.sizes(), unmap,
                       values.options())
      .copy_(values);
}

}  // namespace mini::test
