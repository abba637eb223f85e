// SPDX-License-Identifier: MIT
// Dot products of rows, weighted sums of rows, and outer products of weights and a row. Lanes are
// columns, and each number is read once.

// clang-format off
#if defined(MINI_KERNELS_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_DOT_INL_H_
#undef MINI_KERNELS_DOT_INL_H_
#else
#define MINI_KERNELS_DOT_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"
#include "kernels/pack-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void StoreFourSums(const V (&v)[4], float* out) {
  for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(v[i]);
}

#else

// The sum over the 128-bit blocks of a vector, as one block.
template <class Block = hn::Full128<float>, class Vector>
HWY_INLINE hn::Vec<Block> SumOfBlocks(Vector v) {
  const hn::DFromV<Vector> d;
  if constexpr (hn::MaxLanes(hn::DFromV<Vector>()) == hn::MaxLanes(Block())) {
    return v;
  } else {
    const hn::Half<decltype(d)> half;
    return SumOfBlocks(hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// out[i] = sum of the lanes of v[i]. Transposes as little as possible.
HWY_INLINE void StoreFourSums(const V (&v)[4], float* out) {
  const D d;
  const hn::Repartition<double, D> d64;
  const V v01 = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const V v23 = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto a = hn::BitCast(d64, v01);
  const auto b = hn::BitCast(d64, v23);
  const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a, b)),
                         hn::BitCast(d, hn::InterleaveUpper(d64, a, b)));
  hn::StoreU(SumOfBlocks(sums), hn::Full128<float>(), out);
}

#endif

// out[i] = a_i . b_i for n rows. A stride of 0 pairs one row with many.
HWY_INLINE void DotProducts(ConstRows a, ConstRows b, int64_t n, int64_t width, float* out) {
  const D d;
  const int64_t whole = width / kLanes * kLanes;
  for (int64_t i = 0; i < n; i += 4) {
    const float* row_a[4];
    const float* row_b[4];
    MINI_UNROLL for (int r = 0; r < 4; ++r) {  // past the end, repeat the last row
      row_a[r] = From(a, std::min(i + r, n - 1)).data;
      row_b[r] = From(b, std::min(i + r, n - 1)).data;
    }
    V sums[4];
    MINI_UNROLL for (int r = 0; r < 4; ++r) sums[r] = hn::Zero(d);
    for (int64_t c = 0; c < whole; c += kLanes) {
      MINI_UNROLL for (int r = 0; r < 4; ++r) {
        sums[r] = hn::MulAdd(hn::LoadU(d, row_a[r] + c), hn::LoadU(d, row_b[r] + c), sums[r]);
      }
    }
    if (whole < width) {
      MINI_UNROLL for (int r = 0; r < 4; ++r) {
        sums[r] = hn::MulAdd(LoadFirst(width - whole, row_a[r] + whole),
                             LoadFirst(width - whole, row_b[r] + whole), sums[r]);
      }
    }
    if (i + 4 <= n) {
      StoreFourSums(sums, out + i);
    } else {
      float four[4];
      StoreFourSums(sums, four);
      for (int64_t r = 0; i + r < n; ++r) out[i + r] = four[r];
    }
  }
}

// The first kVectors vectors of the sum, or fewer if only `columns` columns remain.
template <int kVectors>
HWY_INLINE void WeightedSumOfColumns(const float* weights, ConstRows rows, int64_t n,
                                     int64_t columns, float factor, float* out) {
  const D d;
  V even[kVectors], odd[kVectors];  // two independent chains hide the latency
  MINI_UNROLL for (int v = 0; v < kVectors; ++v) even[v] = odd[v] = hn::Zero(d);
  const bool whole = columns >= kVectors * kLanes;
  const auto load = [&](int64_t i, int v) HWY_ATTR {
    const float* from = rows.data + i * rows.stride + v * kLanes;
    return whole ? hn::LoadU(d, from) : LoadFirst(columns - v * kLanes, from);
  };
  int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    const V weight0 = hn::Set(d, weights[i]);
    const V weight1 = hn::Set(d, weights[i + 1]);
    MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
      even[v] = hn::MulAdd(weight0, load(i, v), even[v]);
      odd[v] = hn::MulAdd(weight1, load(i + 1, v), odd[v]);
    }
  }
  if (i < n) {
    const V weight = hn::Set(d, weights[i]);
    MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
      even[v] = hn::MulAdd(weight, load(i, v), even[v]);
    }
  }
  MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
    StoreFirst(hn::Mul(hn::Set(d, factor), hn::Add(even[v], odd[v])), columns - v * kLanes,
               out + v * kLanes);
  }
}

// out = factor * sum_i weights[i] * rows[i].  (n), (n, width) -> (width)
HWY_INLINE void WeightedSum(const float* weights, ConstRows rows, int64_t n, int64_t width,
                            float factor, float* out) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) {
    WeightedSumOfColumns<4>(weights, {rows.data + c, rows.stride}, n, width - c, factor, out + c);
  }
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    WeightedSumOfColumns<2>(weights, {rows.data + c, rows.stride}, n, width - c, factor, out + c);
  }
  for (; c < width; c += kLanes) {
    WeightedSumOfColumns<1>(weights, {rows.data + c, rows.stride}, n, width - c, factor, out + c);
  }
}

// rows[i] = (add ? rows[i] : 0) + weights[i] * row.  (n), (width) -> (n, width)
HWY_INLINE void OuterProduct(const float* weights, const float* row, int64_t n, int64_t width,
                             bool add, Rows rows) {
  const D d;
  for (int64_t i = 0; i < n; ++i) {
    const V weight = hn::Set(d, weights[i]);
    float* to = From(rows, i).data;
    for (int64_t c = 0; c < width; c += kLanes) {
      const V before = add ? LoadFirst(width - c, to + c) : hn::Zero(d);
      StoreFirst(hn::MulAdd(weight, LoadFirst(width - c, row + c), before), width - c, to + c);
    }
  }
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
