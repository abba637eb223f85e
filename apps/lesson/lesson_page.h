// SPDX-License-Identifier: MIT
// The page of compare_weights and trace_attention.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/report.h"

namespace mini::app {

/// The page of page/page.html with this title, of plain letters, and these data in it:
/// `description`, `head_size` (the divisor goes from 1 to it), `divisor` (where it starts),
/// `scores` (B, Tq, Tk), or `q`, `k`, `v` (B, T, H) to be edited, and perhaps `mask` (B, Tq, Tk),
/// to be added to the scaled scores. Infinities are strings, as tensor_json() writes them.
///
/// Throws UsageError for more data than a page of 300 KB holds.
std::string lesson_page(std::string_view title, Json data);

/// The divisor that a factor on the scores amounts to.  Throws UsageError if it is not from 1 to
/// `head_size`.
double page_divisor(double scale, int64_t head_size);

}  // namespace mini::app
