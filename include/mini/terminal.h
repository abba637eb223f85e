// SPDX-License-Identifier: MIT
// What a terminal can show.
#pragma once

#include <cstdint>

#include "mini/export.h"

namespace mini {

/// How many colours text may use.
enum class Colors { kNone, k256, k24Bit };

/// Where text will be read.
struct Terminal {
  int64_t width = 80;  ///< columns
  Colors colors = Colors::kNone;
};

/// What standard output leads to.
///
/// Colours only on a terminal, and where NO_COLOR is unset or empty: 24-bit ones if COLORTERM is
/// truecolor or 24bit, 256 if TERM speaks of 256color, else none. The width is the terminal's, or
/// else COLUMNS, or else 80.
/// Source: https://no-color.org
MINI_API Terminal standard_output();

}  // namespace mini
