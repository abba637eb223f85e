// SPDX-License-Identifier: MIT
#include "files/utf8.h"

#include <utf8.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace mini::detail {
namespace {

constexpr std::size_t kMaxLength = 4;  // of a character, in bytes

/// The completions of a cut character are consecutive numbers. If any of them is a valid code
/// point, the smallest or the largest is too: overlong forms, surrogates and numbers above U+10FFFF
/// never lie at both ends of such a range with valid code points between.
bool can_be_completed(std::string_view cut) {
  for (const char filler : {'\x80', '\xbf'}) {
    std::string completed(cut);
    while (completed.size() < kMaxLength) {
      completed += filler;
      if (is_utf8(completed)) return true;
    }
  }
  return false;
}

bool is_invisible(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  // The Unicode Standard, general categories Cc, Cf, Zl, Zp, and Zs except U+0020.
  constexpr Range kInvisible[] = {
      {0x00, 0x1f},     {0x7f, 0xa0},     {0xad, 0xad},       {0x600, 0x605},    {0x61c, 0x61c},
      {0x6dd, 0x6dd},   {0x70f, 0x70f},   {0x890, 0x891},     {0x8e2, 0x8e2},    {0x1680, 0x1680},
      {0x180e, 0x180e}, {0x2000, 0x200f}, {0x2028, 0x202f},   {0x205f, 0x206f},  {0x3000, 0x3000},
      {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0001, 0xe007f}};
  return std::ranges::any_of(
      kInvisible, [c](const Range& range) { return range.first <= c && c <= range.last; });
}

}  // namespace

bool is_utf8(std::string_view text) { return utf8::is_valid(text.begin(), text.end()); }

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::string visible(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Utf8 next = first_character(text);
    if (next.kind != Utf8::kCharacter) {
      char byte[8];
      std::snprintf(byte, sizeof byte, "<%02X>", static_cast<unsigned char>(text.front()));
      result += byte;
      text.remove_prefix(1);
      continue;
    }
    if (is_invisible(next.code_point)) {
      result += '<' + code_point_name(next.code_point) + '>';
    } else {
      result += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return result;
}

Utf8 first_character(std::string_view text) {
  text = text.substr(0, kMaxLength);
  for (std::size_t length = 1; length <= text.size(); ++length) {
    if (is_utf8(text.substr(0, length))) {
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
