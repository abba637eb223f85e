// SPDX-License-Identifier: MIT
// Keys and values of one attention layer, kept from one call to the next.
//
// Shapes  B batch, nh = n_head, T positions, hs = head_size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "mini/export.h"

namespace mini {

/// Keys and values of one attention layer, in memory that is taken once.
///
/// Generation adds one token at a time; what the earlier ones gave as keys and values stays the
/// same, so that only the new one has to be computed. No gradients flow to what is kept.
class MINI_API KvCache {
 public:
  /// Room for `capacity` positions. The first `append` takes the memory, in its sizes and dtype.
  explicit KvCache(int64_t capacity);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;

  /// Adds k and v, both (B, nh, T, hs), behind the positions that are there.
  ///
  /// Throws c10::Error if they differ in shape, dtype or device from each other or, apart from T,
  /// from those before; if they do not fit in; and if one of them would need a gradient. The cache
  /// is unchanged then.
  void append(const at::Tensor& k, const at::Tensor& v);

  /// All keys, or values, so far: views (B, nh, length(), hs) of the cache, undefined before the
  /// first `append`.
  at::Tensor keys() const;
  at::Tensor values() const;

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  /// Forgets all positions. The memory stays, for the same sizes; other sizes take new memory.
  void clear() { length_ = 0; }

 private:
  int64_t capacity_;
  int64_t length_ = 0;
  at::Tensor keys_, values_;  // (B, nh, capacity, hs)
};

}  // namespace mini
