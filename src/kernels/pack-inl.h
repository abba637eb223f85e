// SPDX-License-Identifier: MIT
// Copies rows of a matrix into the layout that the register tile reads.

// clang-format off
#if defined(MINI_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_PACK_INL_H_
#undef MINI_KERNELS_PACK_INL_H_
#else
#define MINI_KERNELS_PACK_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows per panel: two vectors, the width of a tile of scores.
inline constexpr int64_t kPanel = 2 * kLanes;

HWY_INLINE ConstRows From(ConstRows rows, int64_t first) {
  return {rows.data + first * rows.stride, rows.stride};
}
HWY_INLINE Rows From(Rows rows, int64_t first) {
  return {rows.data + first * rows.stride, rows.stride};
}

#if HWY_TARGET != HWY_SCALAR

// Columns c to c + 3 of kLanes rows, transposed: column[i] holds element c + i of every row.
HWY_INLINE void TransposeFourColumns(const float* const (&row)[kLanes], int64_t c, V (&column)[4]) {
  const D d;
  const hn::Repartition<double, D> d64;
  V four[4];  // block b of four[i]: columns c to c + 3 of row 4 b + i
  MINI_UNROLL for (int i = 0; i < 4; ++i) {
    four[i] = hn::LoadDup128(d, row[kLanes - 4 + i] + c);
    MINI_UNROLL for (int64_t b = kLanes - 8; b >= 0; b -= 4) {
      four[i] = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(b + 4)),
                               hn::LoadDup128(d, row[b + i] + c), four[i]);
    }
  }
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, four[0], four[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, four[2], four[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, four[0], four[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, four[2], four[3]));
  column[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  column[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  column[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  column[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

#endif

// panel[c][i] = factor * rows[i][c], for n <= kPanel rows.  (n, width) -> (width, kPanel)
// The last row is repeated to fill the last vector of lanes.
HWY_INLINE void PackTransposed(ConstRows rows, int64_t n, int64_t width, float factor,
                               float* panel) {
  for (int64_t first = 0; first < n; first += kLanes) {
    const float* row[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      row[i] = rows.data + std::min(first + i, n - 1) * rows.stride;
    }
    float* to = panel + first;
    int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; c + 4 <= width; c += 4) {
      V column[4];
      TransposeFourColumns(row, c, column);
      MINI_UNROLL for (int64_t i = 0; i < 4; ++i) {
        hn::StoreU(hn::Mul(column[i], hn::Set(D(), factor)), D(), to + (c + i) * kPanel);
      }
    }
#endif
    for (; c < width; ++c) {
      for (int64_t i = 0; i < kLanes; ++i) to[c * kPanel + i] = factor * row[i][c];
    }
  }
}

// Stride of a copy of rows: whole vectors and an odd number of cache lines, so that the rows of a
// block are spread over all sets of the cache.
HWY_INLINE constexpr int64_t CopyStride(int64_t width) { return ((width + 15) / 16 | 1) * 16; }

// The same rows, readable in whole vectors: in place if their width and stride allow, otherwise as
// a copy. Rows whose stride is a multiple of 512 bytes would compete for a few sets of the cache.
HWY_INLINE ConstRows WholeVectorRows(ConstRows rows, int64_t n, int64_t width, float* copy) {
  if (width % kLanes == 0 && rows.stride % 128 != 0) return rows;
  const int64_t stride = CopyStride(width);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < width; c += kLanes) {
      hn::StoreU(LoadFirst(width - c, rows.data + i * rows.stride + c), D(), copy + i * stride + c);
    }
  }
  return {copy, stride};
}

HWY_INLINE void ZeroRows(Rows rows, int64_t n, int64_t width) {
  for (int64_t i = 0; i < n; ++i) std::fill_n(From(rows, i).data, width, 0.0F);
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
