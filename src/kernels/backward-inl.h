// SPDX-License-Identifier: MIT
// Backward: all queries against a slice of the keys. The weights are recomputed.
//
//   for each block of queries:
//     delta = rowsum(dO * output)                      PrepareQueries
//     for each block of keys that it sees:
//       P  = exp(S - m - log l)                        WeightsAndScoreGradients
//       dP = dO v^T;  dS = scale * P * (dP - delta)
//       dv += P^T dO;  dk += dS^T q                    AddKeyGradients
//       dq += dS k                                     AddQueryGradients
//
// S, P and dS are stored transposed, as in the forward pass: keys are rows, queries are lanes.
// PrepareQueries multiplies delta and the panels of dO by scale, once per block of queries. If
// scale is so large or small that this might overflow or lose digits, dS is multiplied instead.
// Each product of two blocks is summed from 0 in registers and then added to its gradient. This
// rounds less than one long sum.
//
// Source  Dao 2023, "FlashAttention-2", algorithm 2.

// clang-format off
#if defined(MINI_KERNELS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_BACKWARD_INL_H_
#undef MINI_KERNELS_BACKWARD_INL_H_
#else
#define MINI_KERNELS_BACKWARD_INL_H_
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

// A block's P and dS (64 KiB) stay in the second-level cache with its rows of k and v.
inline constexpr int64_t kBackwardQueries = 64;
inline constexpr int64_t kBackwardKeys = 128;
static_assert(std::max(kBackwardQueries, kBackwardKeys) <= kLongestChain);

struct BackwardScratch {
  BackwardScratch(const HeadInputs& head, Scratch& scratch)
      : q_stride(CopyStride(head.head_size)),
        o_stride(CopyStride(head.value_size)),
        q_panels(scratch.Take(kBackwardQueries * head.head_size)),
        d_output_panels(scratch.Take(kBackwardQueries * head.value_size)),
        q(scratch.Take(kBackwardQueries * q_stride)),
        d_output(scratch.Take(kBackwardQueries * o_stride)),
        k(scratch.Take(kBackwardKeys * q_stride)),
        row_max(scratch.Take(kBackwardQueries)),
        log_sum(scratch.Take(kBackwardQueries)),
        delta(scratch.Take(kBackwardQueries)),
        weights(scratch.Take(kBackwardKeys * kBackwardQueries)),
        d_scores(scratch.Take(kBackwardKeys * kBackwardQueries)),
        mask(scratch.Take(head.mask.IsPresent() ? kBackwardKeys * kPanel : 0)),
        mask_rows(scratch.Take(head.mask.IsPresent() ? kBackwardKeys * kPanel : 0)) {}

  int64_t q_stride, o_stride;
  float* q_panels;         // panels of (hs, kPanel), times ScoreFactors::query
  float* d_output_panels;  // panels of (d_v, kPanel), times DOutputFactor
  float* q;                // rows padded to whole vectors, (queries, q_stride)
  float* d_output;         // rows padded to whole vectors, (queries, o_stride)
  float* k;                // rows padded to whole vectors, (keys, q_stride)
  float* row_max;          // m, (queries)
  float* log_sum;          // log2 l, (queries)
  float* delta;            // DOutputFactor * rowsum(dO * output), (queries)
  float* weights;          // P^T, (keys, kBackwardQueries)
  float* d_scores;         // dS^T, (keys, kBackwardQueries)
  float* mask;             // (keys, kPanel)
  float* mask_rows;        // (kPanel, keys)
};

// The factor on dO and delta: scale, or 1 if dS is multiplied by scale.
HWY_INLINE float DOutputFactor(float scale) {
  const float magnitude = std::abs(scale);
  return magnitude > 0x1p-8F && magnitude < 0x1p8F ? scale : 1.0F;
}

// ---- P and dS of one panel of queries.

struct ScoreGradientStep {
  ScoreBlock block;
  ConstRows v;            // the block's values, (keys, d_v)
  const float* d_output;  // (d_v, kPanel), times DOutputFactor
  int64_t value_size;
  const float* row_max;   // (kPanel)
  const float* log_sum;   // (kPanel)
  const float* delta;     // (kPanel), times DOutputFactor
  float* weights;         // P^T, (keys, kBackwardQueries)
  float* d_scores;        // dS^T, (keys, kBackwardQueries)
  float unit;             // ScoreFactors::unit
  float late_scale;       // scale / DOutputFactor
  bool some_weight_is_1;  // SomeWeightIs1 of the panel
};

// dP -> dS = P * (dP - delta), where dP and delta contain DOutputFactor
template <bool kSomeWeightIs1, int kRows, int kVectors>
HWY_INLINE void StoreScoreGradients(const V (&tile)[kRows][kVectors], int64_t rows,
                                    const float* deltas, const float* weights, float* d_scores) {
  const D d;
  MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
    const V delta = hn::LoadU(d, deltas + v * kLanes);
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      const int64_t at = r * kBackwardQueries + v * kLanes;
      V weight = hn::LoadU(d, weights + at);
      if (kSomeWeightIs1) {
        weight = hn::IfThenZeroElse(hn::Eq(weight, hn::Set(d, 1.0F)), weight);
      }
      hn::StoreU(hn::Mul(weight, hn::Sub(tile[r][v], delta)), d, d_scores + at);
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void ScoreGradientTile(const ScoreGradientStep& step, int64_t j, int64_t rows,
                                  int64_t vector) {
  const D d;
  const int64_t lane = vector * kLanes;
  float* weights = step.weights + j * kBackwardQueries + lane;
  float* d_scores = step.d_scores + j * kBackwardQueries + lane;
  V tile[kRows][kVectors];

  // P = exp(S - m - log l)
  const V unit = hn::Set(d, step.unit);
  ScoreTile(step.block, j, rows, vector, tile);
  MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
    const V row_max = hn::LoadU(d, step.row_max + lane + v * kLanes);
    const V log_sum = hn::LoadU(d, step.log_sum + lane + v * kLanes);
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      hn::StoreU(Exp2(hn::MulSub(hn::Sub(tile[r][v], row_max), unit, log_sum)), d,
                 weights + r * kBackwardQueries + v * kLanes);
    }
  }

  // dP = v_j . dO_i
  SetZero(tile);
  MultiplyAdd(From(step.v, j), rows, step.d_output + lane, kPanel, step.value_size, tile);
  // If a query sees one key, its weight is 1 whatever the score, and dP = delta, so dS is 0. The
  // computed dP and delta differ by rounding, so dS is set to 0 where P is 1.
  if (step.some_weight_is_1) {
    StoreScoreGradients<true>(tile, rows, step.delta + lane, weights, d_scores);
  } else {
    StoreScoreGradients<false>(tile, rows, step.delta + lane, weights, d_scores);
  }
}

template <int kRows>
struct ScoreGradientRows {
  static HWY_NOINLINE void Run(const ScoreGradientStep& step, int64_t j, int64_t rows) {
    const int64_t vector = std::min(step.block.FirstVector(j), step.block.Vectors());
    for (int64_t r = 0; r < rows; ++r) {  // queries that see none of these keys have weight 0
      for (int64_t lane = 0; lane < vector * kLanes; lane += kLanes) {
        const int64_t at = (j + r) * kBackwardQueries + lane;
        hn::StoreU(hn::Zero(D()), D(), step.weights + at);
        hn::StoreU(hn::Zero(D()), D(), step.d_scores + at);
      }
    }
    switch (step.block.Vectors() - vector) {
      case 2:
        return ScoreGradientTile<kRows, 2>(step, j, rows, vector);
      case 1:
        return ScoreGradientTile<kRows, 1>(step, j, rows, vector);
    }
  }
};

// Writes P and dS for all keys of the block, even keys that no query of the panel sees, because the
// products that follow read whole tiles.
HWY_INLINE void WeightsAndScoreGradients(const ScoreGradientStep& step, int64_t keys) {
  for (int64_t j = 0; j < keys; j += kTileRows) {
    const int64_t rows = std::min<int64_t>(kTileRows, keys - j);
    ForTileRows<ScoreGradientRows>(rows, step, j, rows);
  }
  if (step.late_scale == 1.0F) return;
  const D d;
  for (int64_t j = 0; j < keys; ++j) {
    float* row = step.d_scores + j * kBackwardQueries;
    for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + lane), hn::Set(d, step.late_scale)), d, row + lane);
    }
  }
}

// ---- Gradients from P and dS.

struct AddToRows {
  Rows to;
  int64_t rows, columns;
  bool add;  // otherwise overwrite

  template <int kRows, int kVectors>
  HWY_INLINE void operator()(V (&tile)[kRows][kVectors], int64_t column) const {
    MINI_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      MINI_UNROLL for (int v = 0; v < kVectors; ++v) {
        const int64_t at = column + v * kLanes;
        float* row = From(to, r).data + at;
        const V sum = add ? hn::Add(LoadFirst(columns - at, row), tile[r][v]) : tile[r][v];
        StoreFirst(sum, columns - at, row);
      }
    }
  }
};

// gradient (+)= `transposed` * b, summed over queries; rows of `transposed` are keys.
template <int kRows>
struct KeyGradientRows {
  static HWY_NOINLINE void Run(const float* transposed, ConstRows b, int64_t queries,
                               int64_t column, int64_t vectors, const AddToRows& finish) {
    Product<kRows>(RowsOfA<kRows>(transposed, kBackwardQueries, finish.rows), b, queries, column,
                   vectors, finish);
  }
};

// gradient (+)= `transposed`^T * b, summed over keys; columns of `transposed` are queries.
template <int kRows>
struct QueryGradientRows {
  static HWY_NOINLINE void Run(const float* transposed, ConstRows b, int64_t keys, int64_t column,
                               int64_t vectors, const AddToRows& finish) {
    Product<kRows>(ColumnsOfA<kBackwardQueries>{transposed}, b, keys, column, vectors, finish);
  }
};

// dk or dv of keys [first, last) of a block. Key j is hidden from queries i < hidden_queries + j.
HWY_INLINE void AddKeyGradients(const float* transposed, ConstRows b, int64_t queries,
                                int64_t hidden_queries, int64_t first, int64_t last, Rows gradient,
                                int64_t columns, bool add) {
  for (int64_t column = 0, vectors; column < columns; column += vectors * kLanes) {
    vectors = TileVectors(columns - column);
    for (int64_t j = first; j < last; j += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, last - j);
      const int64_t hidden = std::clamp<int64_t>(hidden_queries + j, 0, queries);
      ForTileRows<KeyGradientRows>(rows, transposed + j * kBackwardQueries + hidden,
                                   From(b, hidden), queries - hidden, column, vectors,
                                   AddToRows{From(gradient, j), rows, columns, add});
    }
  }
}

HWY_INLINE void AddQueryGradients(const float* transposed, ConstRows k, int64_t queries,
                                  int64_t hidden_queries, int64_t keys, Rows dq, int64_t columns,
                                  bool add) {
  for (int64_t column = 0, vectors; column < columns; column += vectors * kLanes) {
    vectors = TileVectors(columns - column);
    for (int64_t i = 0; i < queries; i += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, queries - i);
      const int64_t seen = std::clamp<int64_t>(i + rows - hidden_queries, 0, keys);
      ForTileRows<QueryGradientRows>(rows, transposed + i, k, seen, column, vectors,
                                     AddToRows{From(dq, i), rows, columns, add});
    }
  }
}

// ---- The driver.

// The row sum l includes 2^0 = 1 for the largest score. The weight of that score is 1 only if the
// others are lost in rounding: l = 1.
HWY_INLINE bool SomeWeightIs1(const float* log_sum, int64_t queries) {
  const D d;
  bool found = false;
  for (int64_t i = 0; i < queries; i += kLanes) {
    found |= !hn::AllFalse(d, hn::Eq(hn::LoadU(d, log_sum + i), hn::Zero(d)));
  }
  return found;
}

struct QueryBlock {
  ConstRows q, d_output;  // rows that can be read in whole vectors
};

HWY_INLINE QueryBlock PrepareQueries(const HeadInputs& head, const Backward& gradients,
                                     int64_t first, int64_t queries, float query_factor,
                                     const BackwardScratch& s) {
  const D d;
  const ConstRows q = From(head.q, first);
  const ConstRows d_output = From(gradients.d_output, first);
  const float factor = DOutputFactor(head.scale);
  for (int64_t i = 0; i < queries; i += kPanel) {
    const int64_t n = std::min(kPanel, queries - i);
    PackTransposed(From(q, i), n, head.head_size, query_factor, s.q_panels + i * head.head_size);
    PackTransposed(From(d_output, i), n, head.value_size, factor,
                   s.d_output_panels + i * head.value_size);
  }
  DotProducts(From(gradients.output, first), d_output, queries, head.value_size, s.delta);
  for (int64_t i = 0; i < queries; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, s.delta + i), hn::Set(d, factor)), d, s.delta + i);
    hn::StoreU(LoadFirst(queries - i, gradients.row_max + first + i), d, s.row_max + i);
    hn::StoreU(LoadFirst(queries - i, gradients.log_sum + first + i), d, s.log_sum + i);
  }
  return {WholeVectorRows(q, queries, head.head_size, s.q),
          WholeVectorRows(d_output, queries, head.value_size, s.d_output)};
}

void BackwardSlice(const HeadInputs& head, const Backward& gradients, int64_t slice_first,
                   int64_t slice_keys, float* memory) {
  Scratch scratch(memory);
  const BackwardScratch s(head, scratch);
  const ScoreFactors factors(head);
  const int64_t slice_end = slice_first + slice_keys;
  // Rows of dk and dv before key `written` already hold sums. With causality later queries see more
  // keys, and `written` grows.
  int64_t written = gradients.add_to_dk_dv ? slice_end : slice_first;

  for (int64_t first = 0; first < head.queries; first += kBackwardQueries) {
    const int64_t queries = std::min(kBackwardQueries, head.queries - first);
    const int64_t seen = std::min(slice_end, first + queries + head.diagonal);
    const Rows dq = From(gradients.dq, first);
    if (seen <= slice_first) {
      if (!gradients.add_to_dq) ZeroRows(dq, queries, head.head_size);
      continue;
    }
    const QueryBlock block = PrepareQueries(head, gradients, first, queries, factors.query, s);
    for (int64_t key = slice_first; key < seen; key += kBackwardKeys) {
      const int64_t keys = std::min(kBackwardKeys, seen - key);
      const int64_t hidden_queries = key - first - head.diagonal;
      for (int64_t i = 0; i < queries; i += kPanel) {
        const int64_t n = std::min(kPanel, queries - i);
        ScoreGradientStep step{MakeScoreBlock(head, first + i, n, key, keys),
                               From(head.v, key),
                               s.d_output_panels + i * head.value_size,
                               head.value_size,
                               s.row_max + i,
                               s.log_sum + i,
                               s.delta + i,
                               s.weights + i,
                               s.d_scores + i,
                               factors.unit,
                               head.scale / DOutputFactor(head.scale),
                               SomeWeightIs1(s.log_sum + i, n)};
        step.block.q = s.q_panels + i * head.head_size;
        step.block.scale = factors.scale;
        if (head.mask.IsPresent()) {
          PackMask(head.mask, first + i, n, key, keys, s.mask_rows, s.mask);
          step.block.mask = s.mask;
        }
        WeightsAndScoreGradients(step, keys);
      }

      const auto add_key_gradients = [&](int64_t from, int64_t to, bool add) HWY_ATTR {
        AddKeyGradients(s.weights, block.d_output, queries, hidden_queries, from, to,
                        From(gradients.dv, key), head.value_size, add);
        AddKeyGradients(s.d_scores, block.q, queries, hidden_queries, from, to,
                        From(gradients.dk, key), head.head_size, add);
      };
      // Keys before `split` already hold sums; the others are written for the first time.
      const int64_t split = std::clamp(written - key, int64_t{0}, keys);
      add_key_gradients(0, split, /*add=*/true);
      add_key_gradients(split, keys, /*add=*/false);
      AddQueryGradients(s.d_scores, WholeVectorRows(From(head.k, key), keys, head.head_size, s.k),
                        queries, hidden_queries, keys, dq, head.head_size,
                        gradients.add_to_dq || key > slice_first);
    }
    written = std::max(written, seen);
  }
  ZeroRows(From(gradients.dk, written), slice_end - written, head.head_size);
  ZeroRows(From(gradients.dv, written), slice_end - written, head.value_size);
}

int64_t BackwardScratchSize(const HeadInputs& head) {
  Scratch scratch(nullptr);
  const BackwardScratch measured(head, scratch);
  return scratch.size();
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
