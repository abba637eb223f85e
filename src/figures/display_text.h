// SPDX-License-Identifier: MIT
// Text and numbers made fit for a terminal or a picture: harmless, aligned, and no longer than
// fits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mini::detail {

/// `text` as one line of valid UTF-8: control characters become their pictures (a new line is
/// U+240A), what is no UTF-8 or changes the direction of writing becomes U+FFFD.
std::string printable(std::string_view text);

/// Columns that printable text takes on a terminal: two for each wide character, none for a mark
/// that combines with the one before it, as the C library's wcwidth() says.
int64_t display_width(std::string_view printable_text);

/// Printable text in at most `width` columns, an ellipsis standing for what had to go.
std::string shortened(const std::string& printable_text, int64_t width);

/// Shortened, and filled up with spaces to exactly `width` columns.
std::string left_aligned(const std::string& printable_text, int64_t width);
std::string right_aligned(const std::string& printable_text, int64_t width);

/// Words in lines of at most `width` columns, each ended by a new line; longer words are cut.
std::string wrapped(const std::string& printable_text, int64_t width);

/// How numbers that stand together are written.
struct NumberForm {
  bool scientific;
  int decimals;
};

/// Digits after the point as asked for, or 1.2e-05 where numbers up to `largest` in magnitude would
/// show too few digits or too many.
NumberForm number_form(double largest, int decimals);

/// The same in every locale; "nan", "inf" and "-inf" for what is no number.
std::string number_text(double value, NumberForm form);

}  // namespace mini::detail
