// SPDX-License-Identifier: MIT
// The attention of one head at any sequence length: figures, and the weights in few cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "figures/heat_bins.h"

namespace mini::app {

/// Means over the queries of one head.
struct HeadFigures {
  double entropy = 0;        ///< of the weights, in nats
  double entropy_share = 0;  ///< entropy divided by that of even weights on all visible keys
  double peak = 0;           ///< the largest weight
  double distance = 0;       ///< weighted mean of query position minus key position, in tokens
};

struct HeadView {
  HeadFigures figures;
  detail::LargestInBins weights;
};

/// One head without and with the division of the scores.
struct HeadComparison {
  HeadView unscaled, scaled;
};

/// Computes the attention weights of each head. q and k are (heads, T, hs) and share a floating
/// dtype.
///
/// `scale` is the factor on the scores of the scaled views.
/// `causal` hides the keys to the right of each query. A cell of a view holds the largest of up to
/// values_each x values_each weights. Each thread computes a few queries of one head at a time, so
/// that memory grows linearly with T.
std::vector<HeadComparison> compare_heads(const at::Tensor& q, const at::Tensor& k, double scale,
                                          bool causal, int64_t values_each);

}  // namespace mini::app
