// Characters (Unicode code points) in UTF-8, and nothing that only looks like it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mini::detail {

/// What a text begins with.
struct Utf8 {
  enum Kind {
    kCharacter,   ///< One of `length` bytes.
    kIncomplete,  ///< The first bytes of one; the text ends before its last.
    kInvalid,     ///< Nothing that any text could continue.
  };
  Kind kind;
  char32_t code_point = 0;
  std::size_t length = 0;
};

/// Reads the first character of a text that is not empty.
/// Source: The Unicode Standard, table 3-7, "Well-Formed UTF-8 Byte Sequences".
Utf8 first_character(std::string_view text);

/// "U+00E9".
std::string code_point_name(char32_t code_point);

}  // namespace mini::detail
