// SPDX-License-Identifier: MIT
// Peak throughput of multiply-adds on one core, by independent chains. Benchmarks compare the
// kernel with this peak.

// clang-format off
#if defined(MINI_KERNELS_THROUGHPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_THROUGHPUT_INL_H_
#undef MINI_KERNELS_THROUGHPUT_INL_H_
#else
#define MINI_KERNELS_THROUGHPUT_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

// Enough chains to hide the latency of a multiply-add, and few enough to fit into registers.
inline constexpr int kChains = 2 * kTileRows;

double MultiplyAdds(int64_t rounds, float* out) {
  const D d;
  const V factor = hn::Set(d, 0.999F);
  const V summand = hn::Set(d, 0.5F);
  V chain[kChains];
  MINI_UNROLL for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(d, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
    MINI_UNROLL for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, summand);
  }
  V sum = hn::Zero(d);
  MINI_UNROLL for (int i = 0; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  StoreFirst(sum, 1, out);
  return 2.0 * static_cast<double>(rounds) * kChains * static_cast<double>(kLanes);
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
