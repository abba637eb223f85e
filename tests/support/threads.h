// SPDX-License-Identifier: MIT
// A number of threads for a while.
#pragma once

#include <ATen/Parallel.h>

namespace mini::test {

/// LibTorch's operations take n threads while this lives, and then as many as before.
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
