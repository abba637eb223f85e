// SPDX-License-Identifier: MIT
// The page of compare_weights and trace_attention.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/report.h"

namespace mini::app {

/// Returns the page of page/lesson.html with `title` and `data` in it. The title must not need
/// escaping in HTML. The data are
///   `description`    one line on what the page shows,
///   `head_size`      the largest divisor; the smallest is 1,
///   `divisor`        the divisor that the page shows first,
///   `scores`         (B, Tq, Tk), or
///   `q`, `k`, `v`    (B, Tq, d_k), (B, Tk, d_k), (B, Tk, d_v), which the reader can edit,
///   `mask`           (B, Tq, Tk), optional, added to the scaled scores.
/// Infinities are strings, as tensor_json() writes them.
///
/// Throws UsageError if the page is larger than 300 KB.
std::string lesson_page(std::string_view title, Json data);

/// Returns 1 / scale, the page's first divisor. Throws UsageError if it is not between 1 and
/// `head_size`.
double page_divisor(double scale, int64_t head_size);

}  // namespace mini::app
