// SPDX-License-Identifier: MIT
// Text and numbers for a terminal or an image: printable, aligned, and shortened to a width.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mini::detail {

/// Returns `text` as one line of valid UTF-8. A control character becomes its picture (a newline
/// becomes U+240A). Invalid bytes, and characters that change the writing direction, become U+FFFD.
std::string printable(std::string_view text);

/// Returns the columns that printable text fills on a terminal. As in the C library's wcwidth(), a
/// wide character fills two columns and a combining mark none.
int64_t display_width(std::string_view printable_text);
/// Returns the display width of the widest text, or 0 if there is no text.
int64_t widest(const std::vector<std::string>& printable_texts);

/// Cuts printable text to at most `width` columns. An ellipsis marks the cut.
std::string shortened(const std::string& printable_text, int64_t width);

/// Returns `count` spaces, or "" if `count` is negative.
std::string spaces(int64_t count);

/// Shortens the text and pads it with spaces to exactly `width` columns.
std::string left_aligned(const std::string& printable_text, int64_t width);
std::string right_aligned(const std::string& printable_text, int64_t width);

/// Breaks text between words into lines of at most `width` columns. Each line ends in '\n'; a word
/// that is longer than a line is shortened.
std::string wrapped(const std::string& printable_text, int64_t width);

/// The format that the numbers of one figure share.
struct NumberForm {
  bool scientific;
  int decimals;
};

/// Returns fixed-point format with `decimals` digits. If that gives magnitudes up to `largest` too
/// few or too many digits, returns scientific format with one digit (1.2e-05).
NumberForm number_form(double largest, int decimals);

/// Formats a number independently of the locale; "nan", "inf" and "-inf" if it is not finite.
std::string number_text(double value, NumberForm form);

/// Removes the zeros at the end of a decimal fraction: "3.50" becomes "3.5", and "3.00" "3".
std::string without_trailing_zeros(std::string fixed_point);

}  // namespace mini::detail
