// SPDX-License-Identifier: MIT
// Caches that are unchanged after an error.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mini/kv_cache.h"

namespace mini::detail {

/// Returns `body()`. If `body` throws, removes the positions that it appended to `caches`.
template <typename Body>
auto with_rollback(std::span<KvCache> caches, const Body& body) {
  std::vector<int64_t> lengths;
  for (const KvCache& cache : caches) lengths.push_back(cache.length());
  try {
    return body();
  } catch (...) {
    for (std::size_t i = 0; i < caches.size(); ++i) caches[i].truncate(lengths[i]);
    throw;
  }
}

}  // namespace mini::detail
