// SPDX-License-Identifier: MIT
#include "files/utf8.h"

#include <algorithm>

namespace mini::detail {
namespace {

using Byte = unsigned char;

/// 0 for a byte that begins no sequence of several.
std::size_t sequence_length(Byte lead) {
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

/// After four leads the second byte has a smaller range, which leaves out what has a shorter form,
/// the surrogates and what lies beyond U+10FFFF.
bool is_second(Byte lead, Byte byte) {
  const Byte least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const Byte most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return byte >= least && byte <= most;
}

}  // namespace

Utf8 first_character(std::string_view text) {
  const auto lead = static_cast<Byte>(text[0]);
  if (lead < 0x80) return {Utf8::kCharacter, lead, 1};
  const std::size_t length = sequence_length(lead);
  if (length == 0) return {Utf8::kInvalid};

  auto code_point = static_cast<char32_t>(lead & (0x7fU >> length));
  for (std::size_t i = 1; i < std::min(length, text.size()); ++i) {
    const auto byte = static_cast<Byte>(text[i]);
    if (i == 1 ? !is_second(lead, byte) : (byte & 0xc0) != 0x80) return {Utf8::kInvalid};
    code_point = code_point << 6U | (byte & 0x3fU);
  }
  if (text.size() < length) return {Utf8::kIncomplete};
  return {Utf8::kCharacter, code_point, length};
}

std::string code_point_name(char32_t code_point) {
  std::string digits;
  for (char32_t rest = code_point; rest > 0 || digits.size() < 4; rest /= 16) {
    digits.insert(digits.begin(), "0123456789ABCDEF"[rest % 16]);
  }
  return "U+" + digits;
}

}  // namespace mini::detail
