// SPDX-License-Identifier: MIT
// Memory handed out front to back. Over a null pointer it only counts, so that the list of what a
// unit needs is written once and gives both its size and its places.
#pragma once

#include <cstdint>

namespace mini::kernels {

class Scratch {
 public:
  explicit Scratch(float* memory) : memory_(memory) {}

  /// Room for n floats, aligned to 64 bytes if the memory is.
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
