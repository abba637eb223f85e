// SPDX-License-Identifier: MIT
// Hands out memory from front to back. With a null pointer it only counts, so one list of buffers
// defines both the total size and the addresses.
#pragma once

#include <cstdint>

namespace mini::kernels {

class Scratch {
 public:
  explicit Scratch(float* memory) : memory_(memory) {}

  /// A buffer of n floats, aligned to 64 bytes if the memory is.
  float* Take(int64_t n) {
    float* taken = memory_ == nullptr ? nullptr : memory_ + size_;
    size_ += (n + 15) / 16 * 16;
    return taken;
  }

  /// Floats handed out so far.
  int64_t size() const { return size_; }

 private:
  float* memory_;
  int64_t size_ = 0;
};

}  // namespace mini::kernels
