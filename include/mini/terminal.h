// SPDX-License-Identifier: MIT
// Width and colours of a terminal.
#pragma once

#include <cstdint>

#include "mini/export.h"

namespace mini {

/// The colours that text may use: none, xterm's 256 colours, or 24-bit RGB.
enum class Colors { kNone, k256, k24Bit };

/// Properties of the terminal that displays the text.
struct Terminal {
  int64_t width = 80;  ///< in columns
  Colors colors = Colors::kNone;
};

/// Returns the width and the colours of standard output.
///
/// Colours, the first that applies:
/// - kNone if standard output is not a terminal, or if NO_COLOR is set and not empty;
/// - k24Bit if COLORTERM is "truecolor" or "24bit";
/// - k256 if TERM contains "256color", otherwise kNone.
/// Width: the width of the terminal. If it is unknown, the width is COLUMNS; if COLUMNS is not a
/// positive integer, the width is 80.
/// Source: https://no-color.org
MINI_API Terminal standard_output();

}  // namespace mini
