// SPDX-License-Identifier: MIT
#include "support/largest_allocation.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace mini::test {

std::size_t& largest_allocation() {
  thread_local std::size_t largest = 0;
  return largest;
}

}  // namespace mini::test

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  mini::test::largest_allocation() = std::max(mini::test::largest_allocation(), size);
  return std::malloc(std::max<std::size_t>(size, 1));
}

void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
