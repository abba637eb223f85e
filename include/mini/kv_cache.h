// SPDX-License-Identifier: MIT
// The keys and values of one attention layer, cached between calls.
//
// Shapes  B batch, nh = n_head, T positions, hs = head_size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "mini/export.h"

namespace mini {

/// The keys and values of one attention layer, for up to `capacity` positions.
///
/// Generation adds one token at a time, and the keys and values of earlier tokens do not change.
/// With a cache, attention computes only those of the new token. The cache allocates its memory
/// once and stores no gradients.
class MINI_API KvCache {
 public:
  /// An empty cache. The first `append` allocates the memory and sets B, nh, hs, dtype and device.
  /// Throws c10::Error if capacity is not above 0.
  explicit KvCache(int64_t capacity);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  /// Copies k and v, both (B, nh, T, hs), to the positions after the cached ones.
  ///
  /// Throws c10::Error if k and v differ in shape, dtype or device; if B, nh, hs, the dtype or the
  /// device differs from that of the cached tensors; if there is no room for T more positions; or
  /// if grad mode is enabled and k or v requires gradients. The cache is then unchanged.
  void append(const at::Tensor& k, const at::Tensor& v);

  /// Returns the cached keys, a view (B, nh, length(), hs), or an undefined tensor before the first
  /// `append`.
  at::Tensor keys() const;
  /// Returns the cached values, a view (B, nh, length(), hs), or an undefined tensor before the
  /// first `append`.
  at::Tensor values() const;

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  /// Removes all positions. The next `append` reuses the memory if B, nh, hs, dtype and device are
  /// the same, and allocates new memory otherwise.
  void clear() { length_ = 0; }

  /// Removes the positions from `length` on. Throws c10::Error unless 0 <= length <= length().
  void truncate(int64_t length);

 private:
  int64_t capacity_;
  int64_t length_ = 0;
  at::Tensor keys_, values_;  // (B, nh, capacity, hs)
};

}  // namespace mini
