// SPDX-License-Identifier: MIT
#include "files/utf8.h"

#include <string>
#include <vector>

#include "support/support.h"

using mini::detail::code_point_name;
using mini::detail::first_character;
using mini::detail::Utf8;

namespace {

/// The UTF-8 encoding of `c`, also of surrogates and of numbers above U+10FFFF.
std::string encode(char32_t c) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace

TEST_CASE("without_mark removes one byte-order mark at the start", "[utf8]") {
  CHECK(mini::detail::without_mark("\ufeffa\ufeff") == "a\ufeff");
  CHECK(mini::detail::without_mark("a\ufeff") == "a\ufeff");
  CHECK(mini::detail::without_mark("\xef\xbb") == "\xef\xbb");
  CHECK(mini::detail::without_mark("").empty());
}

TEST_CASE("visible names characters that cannot be seen", "[utf8]") {
  using mini::detail::visible;
  CHECK(visible("a ö 😀") == "a ö 😀");
  CHECK(visible("\ufeff1") == "<U+FEFF>1");
  CHECK(visible("a\x1b[31m\n\u00a0\u200b\u202e\u3000") ==
        "a<U+001B>[31m<U+000A><U+00A0><U+200B><U+202E><U+3000>");
  CHECK(visible("\xe9t\xc3") == "<E9>t<C3>");
}

TEST_CASE("first_character reads every code point, and no surrogates or larger numbers", "[utf8]") {
  for (char32_t c = 0; c < 0x200000; ++c) {
    const bool exists = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
    const Utf8 character = first_character(encode(c) + "x");
    if (exists != (character.kind == Utf8::kCharacter) ||
        (exists && (character.code_point != c || character.length != encode(c).size()))) {
      FAIL("code point " << static_cast<uint32_t>(c));
    }
  }
}

TEST_CASE("a character that the end of the text cuts off is incomplete", "[utf8]") {
  for (const char32_t c : {0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff}) {
    const std::string whole = encode(c);
    for (std::size_t size = 1; size < whole.size(); ++size) {
      INFO(static_cast<uint32_t>(c) << " after " << size);
      CHECK(first_character(whole.substr(0, size)).kind == Utf8::kIncomplete);
    }
  }
}

TEST_CASE("bytes that begin no character are invalid, even at the end of the text", "[utf8]") {
  const std::vector<std::string> invalid = {
      "\x80",          // a continuation byte at the start
      "\xc0\xaf",      // '/' in two bytes
      "\xc1\xbf",      //
      "\xe0\x9f",      // three bytes for what fits in two
      "\xed\xa0",      // a surrogate
      "\xf0\x8f",      // four bytes for what fits in three
      "\xf4\x90",      // above U+10FFFF
      "\xf5",          //
      "\xff",          //
      "\xc3(",         // no continuation byte follows
      "\xe2\x82(",     //
      "\xf0\x9f\x98("  //
  };
  for (const std::string& text : invalid) {
    INFO(Catch::Detail::stringify(text));
    CHECK(first_character(text).kind == Utf8::kInvalid);
  }
}

TEST_CASE("code_point_name uses Unicode's notation", "[utf8]") {
  CHECK(code_point_name(0) == "U+0000");
  CHECK(code_point_name(0xe9) == "U+00E9");
  CHECK(code_point_name(0x1f600) == "U+1F600");
}
