// SPDX-License-Identifier: MIT
// Converts a mask of either kind to numbers that are added to the scores, in the layout of the
// scores.

// clang-format off
#if defined(MINI_KERNELS_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_MASK_INL_H_
#undef MINI_KERNELS_MASK_INL_H_
#else
#define MINI_KERNELS_MASK_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"
#include "kernels/pack-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

// scale * score + added, or -infinity if added is -infinity. The selection keeps a key hidden even
// if its score is NaN.
HWY_INLINE V AddMask(V score, V scale, V added) {
  const V hidden = hn::Set(D(), -kInfinity);
  return hn::IfThenElse(hn::Eq(added, hidden), hidden, hn::MulAdd(score, scale, added));
}

// Converts a mask entry to a number that is added to scaled scores. -infinity hides.
HWY_INLINE float AddedToScore(float entry) { return entry; }
HWY_INLINE float AddedToScore(bool visible) { return visible ? 0.0F : -kInfinity; }

template <class Entry>
HWY_INLINE void UnpackMaskRow(const Entry* HWY_RESTRICT from, int64_t stride, int64_t n,
                              float* HWY_RESTRICT row) {
  if (stride == 1) {  // a separate loop that the compiler can vectorise
    for (int64_t j = 0; j < n; ++j) row[j] = AddedToScore(from[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) row[j] = AddedToScore(from[j * stride]);
  }
}

// The numbers added to the scores of one query.  (keys)
HWY_INLINE void PackMaskRow(const Mask& mask, int64_t query, int64_t first_key, int64_t keys,
                            float* row) {
  const int64_t at = query * mask.row_stride + first_key * mask.key_stride;
  if (mask.added != nullptr) {
    UnpackMaskRow(mask.added + at, mask.key_stride, keys, row);
  } else {
    UnpackMaskRow(mask.visible + at, mask.key_stride, keys, row);
  }
}

// The same for n <= kPanel queries.  (keys, kPanel). `rows` is scratch of (kPanel, keys).
HWY_INLINE void PackMask(const Mask& mask, int64_t first_query, int64_t n, int64_t first_key,
                         int64_t keys, float* rows, float* panel) {
  for (int64_t i = 0; i < n; ++i) {
    PackMaskRow(mask, first_query + i, first_key, keys, rows + i * keys);
  }
  PackTransposed({rows, keys}, n, keys, 1.0F, panel);
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
