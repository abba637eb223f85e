// SPDX-License-Identifier: MIT
// Scores of a block of keys with a panel of queries. Both passes begin with them.
//
//   without a mask  S[j][i] = k_j . q_i               -infinity where query i may not see key j
//   with a mask     S[j][i] = scale * k_j . q_i + mask[i][j]
//
// The weight of key j is 2^(unit * (S[j][i] - m_i)), normalised. m_i is the row maximum; unit is
// scale * log2(e) without a mask, and log2(e) with one. The maximum is subtracted before the
// product with unit is rounded, so large scores keep the digits of their differences.
//
// Keys are the rows of a tile, and queries are its lanes. So keys are read in place, only the few
// queries of a unit are transposed, and a query's maximum and sum over its keys need no exchange
// between lanes.

// clang-format off
#if defined(MINI_KERNELS_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_SCORE_INL_H_
#undef MINI_KERNELS_SCORE_INL_H_
#else
#define MINI_KERNELS_SCORE_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/mask-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

// The factors that turn q . k into S, and S - m into an exponent of 2. The packed queries carry the
// sign of the scale, so that a larger S always means a larger weight. They also carry a power of 2
// if scale * log2(e) would overflow or be subnormal. The power is small, so that it does not
// overflow the queries: q . k may be moderate although q is not.
struct ScoreFactors {
  HWY_INLINE explicit ScoreFactors(const HeadInputs& head) {
    const float magnitude = std::abs(head.scale);
    if (magnitude == 0.0F) {
      query = 0.0F;
    } else {
      const float power = magnitude > 2e38F ? 2.0F : magnitude < 2e-38F ? 0x1p-24F : 1.0F;
      query = std::copysign(power, head.scale);
      scale = magnitude / power;
    }
    unit = head.mask.IsPresent() ? kLog2E : scale * kLog2E;
  }

  float query;         // on the packed queries: 0, or a power of 2 with a sign
  float scale = 1.0F;  // on q . k, where a mask is added
  float unit;          // on S - m
};

struct ScoreBlock {
  ConstRows k;         // the block's keys, (keys, hs)
  const float* q;      // (hs, kPanel), times ScoreFactors::query
  const float* mask;   // (keys, kPanel), or null
  float scale = 1.0F;  // ScoreFactors::scale
  int64_t head_size = 0;
  int64_t queries = 0;       // of the panel
  int64_t keys = 0;          // seen by the last query; the forward pass needs no others
  int64_t hidden_lanes = 0;  // Key j is hidden from the first hidden_lanes + j queries.

  // Number of keys of the block that query i sees.
  HWY_INLINE int64_t SeenBy(int64_t i) const {
    return std::clamp<int64_t>(i + 1 - hidden_lanes, 0, keys);
  }
  // The vectors of queries in which some query sees key j are [FirstVector(j), Vectors()).
  HWY_INLINE int64_t FirstVector(int64_t j) const {
    return std::max<int64_t>(hidden_lanes + j, 0) / kLanes;
  }
  HWY_INLINE int64_t Vectors() const { return (queries + kLanes - 1) / kLanes; }
};

HWY_INLINE ScoreBlock MakeScoreBlock(const HeadInputs& head, int64_t first_query, int64_t queries,
                                     int64_t first_key, int64_t keys) {
  ScoreBlock block{From(head.k, first_key), nullptr, nullptr};
  block.head_size = head.head_size;
  block.queries = queries;
  block.hidden_lanes = first_key - first_query - head.diagonal;
  block.keys = std::clamp<int64_t>(queries - block.hidden_lanes, 0, keys);
  return block;
}

// Whether query i may see any key, whatever the scores are.
HWY_INLINE bool SeesAKey(const HeadInputs& head, int64_t i) {
  const int64_t seen = std::clamp<int64_t>(i + head.diagonal + 1, 0, head.keys);
  if (!head.mask.IsPresent()) return seen > 0;
  for (int64_t j = 0; j < seen; ++j) {
    const int64_t at = i * head.mask.row_stride + j * head.mask.key_stride;
    if (head.mask.added != nullptr ? head.mask.added[at] != -kInfinity : head.mask.visible[at]) {
      return true;
    }
  }
  return false;
}

// S of keys [j, j + rows) and of kVectors vectors of queries from `vector`; rows <= kRows.
template <int kRows, int kVectors>
HWY_INLINE void ScoreTile(const ScoreBlock& block, int64_t j, int64_t rows, int64_t vector,
                          V (&scores)[kRows][kVectors]) {
  const D d;
  const V hidden = hn::Set(d, -kInfinity);
  const int64_t lane = vector * kLanes;

  SetZero(scores);
  MultiplyAdd(From(block.k, j), rows, block.q + lane, kPanel, block.head_size, scores);

  if (block.mask != nullptr) {
    const V scale = hn::Set(d, block.scale);
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      const float* mask = block.mask + (j + std::min<int64_t>(r, rows - 1)) * kPanel + lane;
      MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
        scores[r][v] = AddMask(scores[r][v], scale, hn::LoadU(d, mask + v * kLanes));
      }
    }
  }

  const int64_t hidden_in_first_row = block.hidden_lanes + j - lane;
  if (hidden_in_first_row + kRows > 1) {  // some row of the tile is hidden from a lane
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int64_t lanes = std::clamp<int64_t>(hidden_in_first_row + r - v * kLanes, 0, kLanes);
        scores[r][v] =
            hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(lanes)), hidden, scores[r][v]);
      }
    }
  }
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
