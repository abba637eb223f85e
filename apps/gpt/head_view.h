// SPDX-License-Identifier: MIT
// What can be seen of one head's attention at any length: figures, and the weights in few cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "figures/heat_bins.h"

namespace mini::app {

/// Means over the queries.
struct HeadFigures {
  double entropy = 0;        ///< of the weights, in nats
  double entropy_share = 0;  ///< of what it would be with even weights on all visible keys
  double peak = 0;           ///< the largest weight
  double distance = 0;  ///< from the query back to where the weights look on average, in tokens
};

struct HeadView {
  HeadFigures figures;
  detail::LargestInBins weights;
};

/// The same head without the division of the scores by sqrt(hs), and with it.
struct HeadComparison {
  HeadView unscaled, scaled;
};

/// Looks at the attention of each head, q and k (heads, T, hs), of one floating dtype.
///
/// `causal` hides the keys to the right of each query; a cell of a view stands for up to
/// values_each x values_each weights. Each thread looks at a few queries of one head at a time, so
/// that memory grows with T alone.
std::vector<HeadComparison> compare_heads(const at::Tensor& q, const at::Tensor& k, bool causal,
                                          int64_t values_each);

}  // namespace mini::app
