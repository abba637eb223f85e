// SPDX-License-Identifier: MIT
// A few queries against many keys, as in decoding token by token. Nothing is packed or tiled, since
// reading the keys and values dominates the time. For each query:
//
//   s = scale k q + mask;  p = exp(s - max s);  output = (p v) / sum p          Decode
//
//   p = exp(s - max s - log sum);  ds = scale * p * (v dO - output . dO)      DecodeBackward
//   dq = ds k;  dk += ds q^T;  dv += p dO^T

// clang-format off
#if defined(MINI_KERNELS_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_DECODE_INL_H_
#undef MINI_KERNELS_DECODE_INL_H_
#else
#define MINI_KERNELS_DECODE_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/dot-inl.h"
#include "kernels/exp-inl.h"
#include "kernels/mask-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/score-inl.h"
#include "kernels/scratch.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

HWY_INLINE int64_t KeysSeen(const HeadInputs& head, int64_t query) {
  return std::clamp<int64_t>(query + head.diagonal + 1, 0, head.keys);
}

struct DecodeScratch {
  DecodeScratch(const HeadInputs& head, Scratch& scratch)
      : weights(scratch.Take(RoundUp(head.keys, kLanes))),
        d_scores(scratch.Take(RoundUp(head.keys, kLanes))),
        mask(scratch.Take(head.mask.IsPresent() ? RoundUp(head.keys, kLanes) : 0)) {}

  float* weights;   // s, then p, (keys)
  float* d_scores;  // dP, then ds, (keys)
  float* mask;      // (keys)
};

// Scores S of score-inl.h for the keys that the query sees, padded with -infinity to whole vectors.
// Returns the maximum.
HWY_INLINE float Scores(const HeadInputs& head, const ScoreFactors& factors, int64_t query,
                        int64_t seen, const DecodeScratch& s) {
  const D d;
  const V hidden = hn::Set(d, -kInfinity);
  const V query_factor = hn::Set(d, factors.query), scale = hn::Set(d, factors.scale);
  DotProducts({From(head.q, query).data, 0}, head.k, seen, head.head_size, s.weights);
  if (head.mask.IsPresent()) {
    PackMaskRow(head.mask, query, 0, seen, s.mask);
  }
  V largest = hidden;
  for (int64_t j = 0; j < seen; j += kLanes) {
    V score = hn::Mul(hn::LoadU(d, s.weights + j), query_factor);
    if (head.mask.IsPresent()) {
      score = AddMask(score, scale, hn::LoadU(d, s.mask + j));
    }
    if (seen - j < kLanes) {
      score = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(seen - j)), score, hidden);
    }
    hn::StoreU(score, d, s.weights + j);
    largest = hn::Max(largest, score);
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Replaces S by p = 2^(unit * (S - row_max) - log_sum) in place. Returns the sum of p.
HWY_INLINE float RowExponentials(float* weights, int64_t seen, float unit, float row_max,
                                 float log_sum) {
  const D d;
  V sum = hn::Zero(d);
  for (int64_t j = 0; j < seen; j += kLanes) {
    const V score = hn::Sub(hn::LoadU(d, weights + j), hn::Set(d, row_max));
    const V weight = Exp2(hn::MulSub(score, hn::Set(d, unit), hn::Set(d, log_sum)));
    hn::StoreU(weight, d, weights + j);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void Decode(const HeadInputs& head, const Forward& result, float* memory) {
  Scratch scratch(memory);
  const DecodeScratch s(head, scratch);
  const ScoreFactors factors(head);
  for (int64_t i = 0; i < head.queries; ++i) {
    const int64_t seen = KeysSeen(head, i);
    const float largest = Scores(head, factors, i, seen, s);
    const float row_max = largest == -kInfinity ? 0.0F : largest;
    float sum = RowExponentials(s.weights, seen, factors.unit, row_max, 0.0F);
    if (largest == -kInfinity && SeesAKey(head, i)) sum = kNaN;
    // If the row sees no key, sum is 0 and so is the output: 0 / 0 := 0.
    const float normalizer = sum == 0.0F ? 0.0F : 1.0F / sum;
    WeightedSum(s.weights, head.v, seen, head.value_size, normalizer, From(result.output, i).data);
    if (result.log_sum != nullptr) {
      result.row_max[i] = row_max;
      result.log_sum[i] = sum == 0.0F ? kInfinity : std::log2(sum);
    }
  }
}

void DecodeBackward(const HeadInputs& head, const Backward& gradients, float* memory) {
  const D d;
  Scratch scratch(memory);
  const DecodeScratch s(head, scratch);
  const ScoreFactors factors(head);
  int64_t written = gradients.add_to_dk_dv ? head.keys : 0;  // rows of dk, dv that hold sums
  for (int64_t i = 0; i < head.queries; ++i) {
    const int64_t seen = KeysSeen(head, i);
    const float* d_output = From(gradients.d_output, i).data;
    Scores(head, factors, i, seen, s);
    RowExponentials(s.weights, seen, factors.unit, gradients.row_max[i], gradients.log_sum[i]);

    float delta;
    DotProducts(From(gradients.output, i), {d_output, 0}, 1, head.value_size, &delta);
    DotProducts({d_output, 0}, head.v, seen, head.value_size, s.d_scores);
    for (int64_t j = 0; j < seen; j += kLanes) {
      const V centred = hn::Sub(hn::LoadU(d, s.d_scores + j), hn::Set(d, delta));
      const V weight = hn::LoadU(d, s.weights + j);
      // dS is 0 if the query sees one key; see backward-inl.h.
      const V can_change = hn::IfThenZeroElse(hn::Eq(weight, hn::Set(d, 1.0F)), weight);
      hn::StoreU(hn::Mul(hn::Mul(can_change, centred), hn::Set(d, head.scale)), d, s.d_scores + j);
    }

    WeightedSum(s.d_scores, head.k, seen, head.head_size, 1.0F, From(gradients.dq, i).data);
    const auto add_outer_product = [&](int64_t from, int64_t to, bool add) HWY_ATTR {
      OuterProduct(s.d_scores + from, From(head.q, i).data, to - from, head.head_size, add,
                   From(gradients.dk, from));
      OuterProduct(s.weights + from, d_output, to - from, head.value_size, add,
                   From(gradients.dv, from));
    };
    add_outer_product(0, std::min(written, seen), /*add=*/true);
    add_outer_product(written, std::max(written, seen), /*add=*/false);
    written = std::max(written, seen);
  }
  ZeroRows(From(gradients.dk, written), head.keys - written, head.head_size);
  ZeroRows(From(gradients.dv, written), head.keys - written, head.value_size);
}

int64_t DecodeScratchSize(const HeadInputs& head) {
  Scratch scratch(nullptr);
  const DecodeScratch measured(head, scratch);
  return scratch.size();
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
