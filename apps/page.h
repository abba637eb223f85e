// SPDX-License-Identifier: MIT
// The pages of compare_weights and trace_attention, and of inspect_attention: each one file that a
// browser shows without network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heat_bins.h"
#include "report.h"

namespace mini {

/// The page of apps/page/page.html with this title, of plain letters, and these data in it:
/// `description`, `head_size` (the divisor goes from 1 to it), `divisor` (where it starts),
/// `scores` (B, Tq, Tk), or `q`, `k`, `v` (B, T, H) to be edited, and perhaps `mask` (B, Tq, Tk),
/// to be added to the scaled scores. Infinities are strings, as to_json() writes them.
///
/// Throws UsageError for more data than a page of 300 KB holds.
std::string page(std::string_view title, Json data);

/// The divisor that a factor on the scores amounts to.  Throws UsageError if it is not from 1 to
/// `head_size`.
double page_divisor(double scale, int64_t head_size);

/// The page of apps/page/heads.html with these data in it:
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
std::string packed_cells(const LargestInBins& bins, bool causal);

}  // namespace mini
