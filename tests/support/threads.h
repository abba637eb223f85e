// SPDX-License-Identifier: MIT
// The number of threads of LibTorch in a scope.
#pragma once

#include <ATen/Parallel.h>

namespace mini::test {

/// Sets the number of threads of LibTorch to n. The destructor restores the previous number.
class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace mini::test
