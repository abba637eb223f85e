// SPDX-License-Identifier: MIT
#include "files/utf8.h"

#include <utf8.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace mini::detail {
namespace {

constexpr std::size_t kMaxLength = 4;  // of a character, in bytes

bool is_valid(std::string_view text) { return utf8::is_valid(text.begin(), text.end()); }

/// The completions of a cut character are consecutive numbers. If any of them is a valid code
/// point, the smallest or the largest is too: overlong forms, surrogates and numbers above U+10FFFF
/// never lie at both ends of such a range with valid code points between.
bool can_be_completed(std::string_view cut) {
  for (const char filler : {'\x80', '\xbf'}) {
    std::string completed(cut);
    while (completed.size() < kMaxLength) {
      completed += filler;
      if (is_valid(completed)) return true;
    }
  }
  return false;
}

}  // namespace

Utf8 first_character(std::string_view text) {
  text = text.substr(0, kMaxLength);
  for (std::size_t length = 1; length <= text.size(); ++length) {
    if (is_valid(text.substr(0, length))) {
      return {Utf8::kCharacter, utf8::unchecked::peek_next(text.begin()), length};
    }
  }
  return {can_be_completed(text) ? Utf8::kIncomplete : Utf8::kInvalid};
}

std::string code_point_name(char32_t code_point) {
  char name[16];
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(code_point));
  return name;
}

}  // namespace mini::detail
