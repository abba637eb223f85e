// SPDX-License-Identifier: MIT
// Queries, keys and values side by side in each row of one tensor, as produced by one fused
// projection.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace mini::detail {

/// Splits each row into q, k and v, and each of them into heads. Returns views.
/// packed (..., T, 3 C) -> 3 times (..., n_head, T, C / n_head)
inline std::array<at::Tensor, 3> split_packed(const at::Tensor& packed, int64_t n_head) {
  const at::Tensor rows =
      packed.unflatten(-1, {3, n_head, packed.size(-1) / (3 * n_head)});  // (..., T, 3, nh, hs)
  const auto third = [&](int64_t i) { return rows.select(-3, i).transpose(-3, -2); };
  return {third(0), third(1), third(2)};
}

/// The inverse for sizes: sizes of the packed tensor whose q, k or v is `part`.
/// part (..., n_head, T, hs) -> {..., T, 3 C}
inline at::DimVector packed_sizes(const at::Tensor& part) {
  at::DimVector sizes(part.sizes());
  sizes.pop_back();
  sizes.end()[-2] = part.size(-2);
  sizes.end()[-1] = 3 * part.size(-3) * part.size(-1);
  return sizes;
}

/// Whether q, k and v have the memory layout that `split_packed` returns for a contiguous tensor.
inline bool are_packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (q.dim() < 3 || q.numel() == 0 || !k.is_alias_of(q) || !v.is_alias_of(q)) return false;
  const int64_t C = q.size(-3) * q.size(-1);
  at::DimVector strides(q.sizes());
  strides.end()[-1] = 1;
  strides.end()[-2] = 3 * C;
  strides.end()[-3] = q.size(-1);
  int64_t stride = q.size(-2) * 3 * C;
  for (int64_t d = q.dim() - 4; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= q.size(d);
  }
  const auto is_third = [&](const at::Tensor& part, int64_t i) {
    return part.sizes() == q.sizes() && part.strides() == strides &&
           part.storage_offset() == q.storage_offset() + i * C && !part.is_neg();
  };
  return is_third(q, 0) && is_third(k, 1) && is_third(v, 2);
}

}  // namespace mini::detail
