// SPDX-License-Identifier: MIT
// Reads UTF-8 text one character (Unicode code point) at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mini::detail {

/// The result of reading the first character of a text.
struct Utf8 {
  enum Kind {
    kCharacter,   ///< A character of `length` bytes.
    kIncomplete,  ///< The text ends within a character; further bytes can complete it.
    kInvalid,     ///< The first bytes are not UTF-8, whatever bytes follow.
  };
  Kind kind;
  char32_t code_point = 0;
  std::size_t length = 0;  // in bytes
};

/// Reads the first character of `text`, which must not be empty.
/// Source: The Unicode Standard, table 3-7, "Well-Formed UTF-8 Byte Sequences".
Utf8 first_character(std::string_view text);

/// Whether the whole text is UTF-8.
bool is_utf8(std::string_view text);

/// `text` without the byte-order mark U+FEFF that some editors write at the start.
std::string_view without_mark(std::string_view text);

/// `text` for a message. A character that cannot be seen (a control or format character, or a space
/// other than U+0020) becomes its name in angle brackets, such as <U+FEFF>. A byte that is not
/// UTF-8 becomes its hexadecimal value, such as <E9>.
std::string visible(std::string_view text);

/// The name of a code point in Unicode's notation: "U+00E9".
std::string code_point_name(char32_t code_point);

}  // namespace mini::detail
