// SPDX-License-Identifier: MIT
// The page of inspect_attention.
#pragma once

#include <cstdint>
#include <string>

#include "common/report.h"
#include "figures/heat_bins.h"

namespace mini::app {

/// Inserts `data` into page/heads.html. Its members:
/// - `description`, `layers`, `heads` (per layer), `head_size`, `tokens` (T) and `causal`;
/// - `texts` of the tokens, or an empty list;
/// - `values_each`: a cell shows the largest of values_each x values_each weights;
/// - `share_digits`: decimals of shares in percent;
/// - `conclusion`: a text about all heads;
/// - `views`: for each head of each layer `layer`, `head`, `changes_most`, `unscaled` and `scaled`.
///   The last two hold `entropy`, `entropy_share`, `peak`, `distance`, and `weights` as returned
///   by packed_cells().
std::string heads_page(Json data);

/// Rows and columns of each grid on the page: as many as a reader can distinguish, or fewer if the
/// page would otherwise exceed about 40 MB.
int64_t cells_of_heads_page(int64_t heads);

/// The cells of a square matrix in row-major order, as base64 of little-endian float32.
/// If `causal`, each row ends at the diagonal.
std::string packed_cells(const detail::LargestInBins& bins, bool causal);

}  // namespace mini::app
