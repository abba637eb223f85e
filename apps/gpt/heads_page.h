// SPDX-License-Identifier: MIT
// The page of inspect_attention.
#pragma once

#include <cstdint>
#include <string>

#include "common/report.h"
#include "figures/heat_bins.h"

namespace mini::app {

/// The page of page/heads.html with these data in it:
/// `description`, `layers`, `heads` (of each layer), `head_size`, `tokens` (T), `texts` (of the
/// tokens, or none), `causal`, `values_each` (weights a side that a cell stands for),
/// `share_digits` (decimals of shares in percent), `conclusion` (a text on all heads), and `views`,
/// for each layer and head in turn `layer`, `head`, `changes_most`, and in `unscaled` and `scaled`
/// its figures (`entropy`, `entropy_share`, `peak`, `distance`) and `weights`, as packed_cells()
/// gives them.
std::string heads_page(Json data);

/// Cells a side of that page's grids: as many as can be told apart, fewer where there are so many
/// heads that the page would grow beyond some 40 MB.
int64_t cells_of_heads_page(int64_t heads);

/// The cells of a square matrix as base64 of float32, little-endian, row by row; if `causal` each
/// row only up to the diagonal.
std::string packed_cells(const detail::LargestInBins& bins, bool causal);

}  // namespace mini::app
