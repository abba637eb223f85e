// SPDX-License-Identifier: MIT
// Forward: one block of queries against all keys that it sees, by the online softmax.
//
//   m = -infinity;  l = 0;  O = 0
//   for each block of keys:
//     S  = scores of the block                        StoreScores
//     m' = max(m, max_j S);  P = exp(S - m')          UpdateSoftmax
//     l  = l exp(m - m') + sum_j P
//     O  = O exp(m - m') + P v                        AddValues
//     m  = m'
//   output = O / l;  keep m and log l                 NormalizerAndLogSum
//
// All exponentials and logarithms are in base 2. S and P are stored transposed: keys are rows,
// queries are lanes. For each block of keys, queries are processed in panels of kPanel (two
// vectors), so that the block stays in the cache for all panels.
//
// Source  Milakov, Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022,
//         "FlashAttention", algorithm 1.

// clang-format off
#if defined(MINI_KERNELS_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_FORWARD_INL_H_
#undef MINI_KERNELS_FORWARD_INL_H_
#else
#define MINI_KERNELS_FORWARD_INL_H_
#endif
// clang-format on

#include <algorithm>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/exp-inl.h"
#include "kernels/mask-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/score-inl.h"
#include "kernels/scratch.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

// S, P and the values of a block stay in the second-level cache. From 48 to 512 keys the time
// differs by at most 3 % (Zen 4).
inline constexpr int64_t kKeyBlock = 128;
static_assert(kKeyBlock <= kLongestChain);

struct ForwardScratch {
  ForwardScratch(const HeadInputs& head, Scratch& scratch)
      : value_stride(CopyStride(head.value_size)),
        q(scratch.Take(kQueryBlock * head.head_size)),
        row_max(scratch.Take(kQueryBlock)),
        row_sum(scratch.Take(kQueryBlock)),
        unnormalized(scratch.Take(kQueryBlock * value_stride)),
        weights(scratch.Take(kKeyBlock * kPanel)),
        values(scratch.Take(kKeyBlock * value_stride)),
        mask(scratch.Take(head.mask.IsPresent() ? kKeyBlock * kPanel : 0)),
        mask_rows(scratch.Take(head.mask.IsPresent() ? kKeyBlock * kPanel : 0)) {}

  int64_t value_stride;
  float* q;             // panels of (hs, kPanel), times ScoreFactors::query
  float* row_max;       // m, (queries)
  float* row_sum;       // l, (queries)
  float* unnormalized;  // O, (queries, value_stride)
  float* weights;       // S^T, then P^T, (keys, kPanel)
  float* values;        // v in whole vectors, (keys, value_stride)
  float* mask;          // (keys, kPanel)
  float* mask_rows;     // (kPanel, keys)
};

// ---- S and its maximum over the keys, for each query.

template <int kRows, int kVectors>
HWY_INLINE void StoreScoreTile(const ScoreBlock& block, int64_t j, int64_t rows, int64_t vector,
                               float* scores, float* block_max) {
  const D d;
  V tile[kRows][kVectors];
  ScoreTile(block, j, rows, vector, tile);
  MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int64_t lane = (vector + v) * kLanes;
    V row_max = hn::LoadU(d, block_max + lane);
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      hn::StoreU(tile[r][v], d, scores + (j + r) * kPanel + lane);
      row_max = hn::Max(row_max, tile[r][v]);
    }
    hn::StoreU(row_max, d, block_max + lane);
  }
}

// A struct, because `ForTileRows` accepts only class templates. Not inlined, so that the compiler
// allocates registers for each size of tile separately.
template <int kRows>
struct StoreScoreRows {
  static HWY_NOINLINE void Run(const ScoreBlock& block, int64_t j, int64_t rows, float* scores,
                               float* block_max) {
    const int64_t vector = block.FirstVector(j);
    if (block.Vectors() - vector == 2) {
      StoreScoreTile<kRows, 2>(block, j, rows, vector, scores, block_max);
    } else {
      StoreScoreTile<kRows, 1>(block, j, rows, vector, scores, block_max);
    }
  }
};

// scores: (keys, kPanel), block_max: (kPanel). Vectors of queries that see no key of a tile are
// skipped: their scores are not written and do not enter the maximum.
HWY_INLINE void StoreScores(const ScoreBlock& block, float* scores, float* block_max) {
  for (int64_t lane = 0; lane < kPanel; ++lane) block_max[lane] = -kInfinity;
  for (int64_t j = 0; j < block.keys; j += kTileRows) {
    const int64_t rows = std::min<int64_t>(kTileRows, block.keys - j);
    ForTileRows<StoreScoreRows>(rows, block, j, rows, scores, block_max);
  }
}

// ---- P = exp(S - m'), and the update of m and l.

// Replaces S by P in place for the first `seen` of `keys` rows, and by 0 for the others. Returns
// the sum of P over the rows.
HWY_INLINE V PanelExponentials(float* weights, int64_t seen, int64_t keys, V row_max,
                               const Exp2OfProduct& exp2_of_score) {
  const D d;
  // If a query has seen no key yet, its scores and their maximum are -infinity, and P is 0.
  const V shift = hn::IfThenZeroElse(hn::Eq(row_max, hn::Set(d, -kInfinity)), row_max);
  constexpr int kChains = 4;  // independent sums hide the latency and round less
  V sums[kChains];
  MINI_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = hn::Zero(d);
  int64_t j = 0;
  for (; j + kChains <= seen; j += kChains) {
    MINI_UNROLL for (int i = 0; i < kChains; ++i) {
      float* at = weights + (j + i) * kPanel;
      const V weight = exp2_of_score(hn::Sub(hn::LoadU(d, at), shift));
      hn::StoreU(weight, d, at);
      sums[i] = hn::Add(sums[i], weight);
    }
  }
  for (; j < seen; ++j) {
    float* at = weights + j * kPanel;
    const V weight = exp2_of_score(hn::Sub(hn::LoadU(d, at), shift));
    hn::StoreU(weight, d, at);
    sums[0] = hn::Add(sums[0], weight);
  }
  for (; j < keys; ++j) hn::StoreU(hn::Zero(d), d, weights + j * kPanel);
  return hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
}

// block_max, row_max, row_sum, rescale: (kPanel); rescale = exp(m - m').
HWY_INLINE void UpdateSoftmax(const ScoreBlock& block, const float* block_max, float unit,
                              bool first_block, float* weights, float* row_max, float* row_sum,
                              float* rescale) {
  const D d;
  const Exp2OfProduct exp2_of_score(hn::Set(d, unit));
  for (int64_t vector = 0; vector < block.Vectors(); ++vector) {
    const int64_t lane = vector * kLanes;
    const int64_t last_query = std::min(lane + kLanes, block.queries) - 1;
    V m = hn::LoadU(d, block_max + lane);
    V l = hn::Zero(d);
    if (!first_block) {
      const V m_before = hn::LoadU(d, row_max + lane);
      m = hn::Max(m, m_before);
      const V nothing_seen = hn::Set(d, -kInfinity);
      const V factor =
          hn::IfThenZeroElse(hn::Eq(m_before, nothing_seen), exp2_of_score(hn::Sub(m_before, m)));
      l = hn::Mul(hn::LoadU(d, row_sum + lane), factor);
      hn::StoreU(factor, d, rescale + lane);
    }
    l = hn::Add(l, PanelExponentials(weights + lane, block.SeenBy(last_query), block.keys, m,
                                     exp2_of_score));
    hn::StoreU(m, d, row_max + lane);
    hn::StoreU(l, d, row_sum + lane);
  }
}

// ---- O = O exp(m - m') + P v, and after the last block of keys output = O / l.

struct ValueStep {
  const float* weights;     // P^T, (keys, kPanel)
  ConstRows values;         // (keys, value_stride)
  const float* rescale;     // null in the first block of keys
  const float* normalizer;  // 1 / l in the last one, else null
  Rows unnormalized;        // O, (queries, value_stride)
  Rows output;              // (queries, d_v)
  int64_t value_size;
};

// Receives one tile of P v, whose rows are queries.
struct RescaleAddNormalize {
  const ValueStep& step;
  int64_t first, rows;

  template <int kRows, int kVectors>
  HWY_INLINE void operator()(V (&tile)[kRows][kVectors], int64_t column) const {
    const D d;
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      const int64_t i = first + r;
      float* unnormalized = From(step.unnormalized, i).data + column;
      MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
        V sum = tile[r][v];
        if (step.rescale != nullptr) {
          sum =
              hn::MulAdd(hn::LoadU(d, unnormalized + v * kLanes), hn::Set(d, step.rescale[i]), sum);
        }
        if (step.normalizer != nullptr) {
          const int64_t at = column + v * kLanes;
          StoreFirst(hn::Mul(sum, hn::Set(d, step.normalizer[i])), step.value_size - at,
                     From(step.output, i).data + at);
        } else {
          hn::StoreU(sum, d, unnormalized + v * kLanes);
        }
      }
    }
  }
};

template <int kRows>
struct AddValueRows {
  static HWY_NOINLINE void Run(const ValueStep& step, int64_t first, int64_t rows, int64_t seen,
                               int64_t column, int64_t vectors) {
    Product<kRows>(ColumnsOfA<kPanel>{step.weights + first}, step.values, seen, column, vectors,
                   RescaleAddNormalize{step, first, rows});
  }
};

HWY_INLINE void AddValues(const ScoreBlock& block, const ValueStep& step) {
  for (int64_t column = 0, vectors; column < step.value_size; column += vectors * kLanes) {
    vectors = TileVectors(step.value_size - column);
    for (int64_t first = 0; first < block.queries; first += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, block.queries - first);
      ForTileRows<AddValueRows>(rows, step, first, rows, block.SeenBy(first + rows - 1), column,
                                vectors);
    }
  }
}

// If all visible scores of a row are -infinity, its softmax is NaN, as in the formula. A row that
// sees no key stays 0.
HWY_INLINE void MarkInfiniteRows(const HeadInputs& head, int64_t first_query, int64_t queries,
                                 const float* row_max, float* row_sum) {
  const D d;
  const V nothing = hn::Set(d, -kInfinity);
  for (int64_t lane = 0; lane < queries; lane += kLanes) {
    if (hn::AllFalse(d, hn::Eq(hn::LoadU(d, row_max + lane), nothing))) continue;
    for (int64_t i = lane; i < std::min(lane + kLanes, queries); ++i) {
      if (row_max[i] == -kInfinity && SeesAKey(head, first_query + i)) row_sum[i] = kNaN;
    }
  }
}

// normalizer = 1 / l, or 0 for a query that sees no key, so that its output is 0 and not NaN.
HWY_INLINE void NormalizerAndLogSum(const float* row_max, const float* row_sum, int64_t queries,
                                    float* normalizer, float* row_max_out, float* log_sum_out) {
  const D d;
  for (int64_t lane = 0; lane < queries; lane += kLanes) {
    const V l = hn::LoadU(d, row_sum + lane);
    const auto nothing_seen = hn::Eq(l, hn::Zero(d));
    hn::StoreU(hn::IfThenZeroElse(nothing_seen, hn::Div(hn::Set(d, 1.0F), l)), d,
               normalizer + lane);
    if (log_sum_out != nullptr) {
      const V m = hn::LoadU(d, row_max + lane);
      StoreFirst(hn::IfThenZeroElse(nothing_seen, m), queries - lane, row_max_out + lane);
      const V log_sum = hn::IfThenElse(hn::IsNaN(l), l, hn::Log2(d, l));  // Log2 loses NaN
      StoreFirst(hn::IfThenElse(nothing_seen, hn::Set(d, kInfinity), log_sum), queries - lane,
                 log_sum_out + lane);
    }
  }
}

// ---- The driver.

void ForwardUnit(const HeadInputs& head, const Forward& result, int64_t first_query,
                 int64_t queries, float* memory) {
  Scratch scratch(memory);
  const ForwardScratch s(head, scratch);
  HWY_ALIGN float block_max[kPanel];
  HWY_ALIGN float rescale[kPanel];
  HWY_ALIGN float normalizer[kPanel];
  const ScoreFactors factors(head);

  for (int64_t i = 0; i < queries; i += kPanel) {
    PackTransposed(From(head.q, first_query + i), std::min(kPanel, queries - i), head.head_size,
                   factors.query, s.q + i * head.head_size);
  }

  // A panel that sees no key also runs the steps once, without keys, to write zeros.
  int64_t first_key = 0;
  do {
    const int64_t block_keys = std::min(kKeyBlock, head.keys - first_key);
    const ConstRows values =
        WholeVectorRows(From(head.v, first_key), block_keys, head.value_size, s.values);
    for (int64_t i = 0; i < queries; i += kPanel) {
      const int64_t panel_queries = std::min(kPanel, queries - i);
      const int64_t query = first_query + i;
      ScoreBlock block = MakeScoreBlock(head, query, panel_queries, first_key, block_keys);
      if (first_key > 0 && block.keys == 0) continue;
      block.q = s.q + i * head.head_size;
      block.scale = factors.scale;
      if (head.mask.IsPresent()) {
        PackMask(head.mask, query, panel_queries, first_key, block.keys, s.mask_rows, s.mask);
        block.mask = s.mask;
      }
      const bool first_block = first_key == 0;
      const bool last_block = first_key + block_keys == head.keys ||
                              first_key + block_keys >= query + panel_queries + head.diagonal;

      StoreScores(block, s.weights, block_max);
      UpdateSoftmax(block, block_max, factors.unit, first_block, s.weights, s.row_max + i,
                    s.row_sum + i, rescale);
      if (last_block) {
        MarkInfiniteRows(head, query, panel_queries, s.row_max + i, s.row_sum + i);
        NormalizerAndLogSum(s.row_max + i, s.row_sum + i, panel_queries, normalizer,
                            result.row_max == nullptr ? nullptr : result.row_max + query,
                            result.log_sum == nullptr ? nullptr : result.log_sum + query);
      }
      AddValues(block, {s.weights,
                        values,
                        first_block ? nullptr : rescale,
                        last_block ? normalizer : nullptr,
                        {s.unnormalized + i * s.value_stride, s.value_stride},
                        From(result.output, query),
                        head.value_size});
    }
    first_key += kKeyBlock;
  } while (first_key < std::min(head.keys, first_query + queries + head.diagonal));
}

int64_t ForwardScratchSize(const HeadInputs& head) {
  Scratch scratch(nullptr);
  const ForwardScratch measured(head, scratch);
  return scratch.size();
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
