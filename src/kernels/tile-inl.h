// SPDX-License-Identifier: MIT
// The register tile behind every matrix product in this folder: C = A B for a few rows of A and a
// few vectors of columns of B, with all sums in registers.
//
//   for k:  for each row r, vector v:  c[r][v] += a(r, k) * b(k)[v]
//
// A is read one number at a time (from anywhere), B in whole vectors. Larger products are split
// into tiles: `ForTileRows` chooses at most kTileRows rows, `TileVectors` chooses 1 to 3 vectors.
// Columns are the outer loop, so that a few columns of B stay in the first-level cache for all rows
// of A.

// clang-format off
#if defined(MINI_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_TILE_INL_H_
#undef MINI_KERNELS_TILE_INL_H_
#else
#define MINI_KERNELS_TILE_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
inline constexpr int64_t kLanes = hn::MaxLanes(D());

// Largest tile. rows * vectors sums, one row of B and one number of A must fit into the 32 or 16
// registers.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kTileRows = 8;
inline constexpr int kTileVectors = 3;
#else
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 2;
#endif

// Loops over registers must be unrolled: an array indexed at run time would be in memory.
#define MINI_UNROLL _Pragma("GCC unroll 32")

// ---- Tails: load or store only the first n of kLanes numbers.

HWY_INLINE V LoadFirst(int64_t n, const float* from) {
  const D d;
  if (n >= kLanes) return hn::LoadU(d, from);
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, from);
#else  // here MaskedLoad reads the whole vector
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

HWY_INLINE void StoreFirst(V v, int64_t n, float* to) {
  const D d;
  if (n >= kLanes) return hn::StoreU(v, d, to);
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, to);
#else  // here BlendedStore reads and writes the whole vector
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < n; ++i) to[i] = lanes[i];
#endif
}

HWY_INLINE constexpr int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// ---- Operand A.

// a(r, k) = data[r * stride + k]. If r >= rows, the last row is repeated, so that the tile does not
// read past the end. The caller ignores the results of such rows.
template <int kRows>
struct RowsOfA {
  HWY_INLINE RowsOfA(const float* data_, int64_t stride, int64_t rows) : data(data_) {
    MINI_UNROLL for (int r = 0; r < kRows; ++r) offset[r] = std::min<int64_t>(r, rows - 1) * stride;
  }
  HWY_INLINE float operator()(int r) const { return data[offset[r]]; }
  HWY_INLINE void NextK() { ++data; }

  const float* data;
  int64_t offset[kRows];
};

// a(r, k) = data[k * kStride + r].
template <int64_t kStride>
struct ColumnsOfA {
  HWY_INLINE float operator()(int r) const { return data[r]; }
  HWY_INLINE void NextK() { data += kStride; }

  const float* data;
};

// ---- The micro-kernel.

template <int kRows, int kVectors>
HWY_INLINE void SetZero(V (&sums)[kRows][kVectors]) {
  MINI_UNROLL for (int r = 0; r < kRows; ++r) {
    MINI_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(D());
  }
}

// sums[r][v] += a(r, k) * b(k)[v], for k in [0, K), in one chain; b(k) starts at b + k * b_stride.
template <int kRows, int kVectors, class OperandA>
HWY_INLINE void MultiplyAddChain(OperandA& a, const float* HWY_RESTRICT b, int64_t b_stride,
                                 int64_t K, V (&sums)[kRows][kVectors]) {
  const D d;
  for (int64_t k = 0; k < K; ++k) {
    V row[kVectors];
    MINI_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kLanes);
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      const V number = hn::Set(d, a(r));
      MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(number, row[v], sums[r][v]);
      }
    }
    a.NextK();
    b += b_stride;
  }
}

// The same sums for the rows of A, in chains of at most kLongestChain terms. Shorter chains round
// less.
inline constexpr int64_t kLongestChain = 256;

template <int kRows, int kVectors>
HWY_NOINLINE void AddMoreChains(ConstRows a, int64_t rows, const float* b, int64_t b_stride,
                                int64_t K, V (&sums)[kRows][kVectors]) {
  for (int64_t k = kLongestChain; k < K; k += kLongestChain) {
    RowsOfA<kRows> rows_of_a(a.data + k, a.stride, rows);
    V chain[kRows][kVectors];
    SetZero(chain);
    MultiplyAddChain(rows_of_a, b + k * b_stride, b_stride, std::min(K - k, kLongestChain), chain);
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::Add(sums[r][v], chain[r][v]);
      }
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void MultiplyAdd(ConstRows a, int64_t rows, const float* HWY_RESTRICT b,
                            int64_t b_stride, int64_t K, V (&sums)[kRows][kVectors]) {
  RowsOfA<kRows> rows_of_a(a.data, a.stride, rows);
  if (HWY_LIKELY(K <= kLongestChain)) {
    MultiplyAddChain(rows_of_a, b, b_stride, K, sums);
    return;
  }
  MultiplyAddChain(rows_of_a, b, b_stride, kLongestChain, sums);
  // Copies, so that `sums` stays in registers if K is small.
  V copy[kRows][kVectors];
  MINI_UNROLL for (int r = 0; r < kRows; ++r) {
    MINI_UNROLL for (int v = 0; v < kVectors; ++v) copy[r][v] = sums[r][v];
  }
  AddMoreChains(a, rows, b, b_stride, K, copy);
  MINI_UNROLL for (int r = 0; r < kRows; ++r) {
    MINI_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = copy[r][v];
  }
}

// ---- Splitting a product into tiles.

// Calls Step<kRows>::Run(arguments...) with the smallest even kRows >= rows; 0 < rows <= kTileRows.
template <template <int> class Step, class... Arguments>
HWY_INLINE void ForTileRows(int64_t rows, const Arguments&... arguments) {
  switch ((rows + 1) / 2) {
    case 1:
      return Step<2>::Run(arguments...);
    case 2:
      return Step<4>::Run(arguments...);
    case 3:
      return Step<6>::Run(arguments...);
    default:
      return Step<kTileRows>::Run(arguments...);
  }
}

// Number of vectors of the next tile if this many columns remain.
HWY_INLINE int64_t TileVectors(int64_t columns) {
  const int64_t vectors = (columns + kLanes - 1) / kLanes;
  if (vectors == 4) return 2;  // 2 + 2 instead of 3 + 1
  return std::min<int64_t>(vectors, kTileVectors);
}

template <int kRows, int kVectors, class OperandA, class Finish>
HWY_INLINE void ProductTile(OperandA a, ConstRows b, int64_t K, int64_t column,
                            const Finish& finish) {
  V sums[kRows][kVectors];
  SetZero(sums);
  MultiplyAddChain(a, b.data + column, b.stride, K, sums);
  finish(sums, column);
}

// Calls finish(sums, column) with the product of A and `vectors` vectors of columns of B;
// K <= kLongestChain.
template <int kRows, class OperandA, class Finish>
HWY_INLINE void Product(const OperandA& a, ConstRows b, int64_t K, int64_t column, int64_t vectors,
                        const Finish& finish) {
  switch (vectors) {
    case 1:
      return ProductTile<kRows, 1>(a, b, K, column, finish);
    case 2:
      return ProductTile<kRows, 2>(a, b, K, column, finish);
    default:
      return ProductTile<kRows, kTileVectors>(a, b, K, column, finish);
  }
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
