// SPDX-License-Identifier: MIT
#include "figures/display_text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "files/utf8.h"

namespace mini::detail {
namespace {

constexpr char32_t kReplacement = 0xfffd;
constexpr std::string_view kEllipsis = "\u2026";

// The first character of `text`. A byte that does not begin a character counts as kReplacement.
Utf8 next_character(std::string_view text) {
  const Utf8 next = first_character(text);
  return next.kind == Utf8::kCharacter ? next : Utf8{Utf8::kInvalid, kReplacement, 1};
}

// What replaces a character that a terminal or an XML parser would not show as text, else "".
std::string replacement(char32_t c) {
  if (c < 0x20 || c == 0x7f) {  // control pictures: U+2400 to U+241F, and U+2421
    return {'\xe2', '\x90', static_cast<char>(0x80 | (c == 0x7f ? 0x21 : c))};
  }
  const bool control = c >= 0x80 && c < 0xa0;
  const bool line_end = c == 0x2028 || c == 0x2029;
  const bool direction = c == 0x061c || c == 0x200e || c == 0x200f ||
                         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  const bool noncharacter = c == 0xfeff || (c & 0xfffe) == 0xfffe;
  const bool harmful = control || line_end || direction || noncharacter || c == kReplacement;
  return harmful ? "\ufffd" : "";
}

int64_t character_width(char32_t c) {
  if (c < 0x80) return 1;
  // wcwidth() needs a UTF-8 locale.
  static const locale_t utf8_locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  const locale_t before = ::uselocale(utf8_locale);
  const int width = ::wcwidth(static_cast<wchar_t>(c));
  ::uselocale(before);
  return width < 0 ? 1 : width;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Utf8 next = next_character(text);
    const std::string replaced = replacement(next.code_point);
    result += replaced.empty() ? text.substr(0, next.length) : replaced;
    text.remove_prefix(next.length);
  }
  return result;
}

int64_t display_width(std::string_view printable_text) {
  int64_t width = 0;
  while (!printable_text.empty()) {
    const Utf8 next = next_character(printable_text);
    width += character_width(next.code_point);
    printable_text.remove_prefix(next.length);
  }
  return width;
}

int64_t widest(const std::vector<std::string>& printable_texts) {
  int64_t width = 0;
  for (const std::string& text : printable_texts) width = std::max(width, display_width(text));
  return width;
}

std::string spaces(int64_t count) {
  return std::string(static_cast<size_t>(std::max<int64_t>(0, count)), ' ');
}

std::string shortened(const std::string& printable_text, int64_t width) {
  if (display_width(printable_text) <= width) return printable_text;
  if (width <= 0) return "";
  std::string_view rest = printable_text;
  for (int64_t columns = 1;;) {  // the ellipsis
    const Utf8 next = next_character(rest);
    columns += character_width(next.code_point);
    if (columns > width) {
      return printable_text.substr(0, printable_text.size() - rest.size()).append(kEllipsis);
    }
    rest.remove_prefix(next.length);
  }
}

std::string left_aligned(const std::string& printable_text, int64_t width) {
  const std::string text = shortened(printable_text, width);
  return text + spaces(width - display_width(text));
}

std::string right_aligned(const std::string& printable_text, int64_t width) {
  const std::string text = shortened(printable_text, width);
  return spaces(width - display_width(text)) + text;
}

std::string wrapped(const std::string& printable_text, int64_t width) {
  std::istringstream words(printable_text);
  std::string lines, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines += line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + shortened(word, width);
  }
  return lines + line + '\n';
}

NumberForm number_form(double largest, int decimals) {
  const bool too_small = decimals > 0 && largest > 0 && largest < 5 * std::pow(10.0, -decimals);
  return largest >= 1e6 || too_small ? NumberForm{true, 1} : NumberForm{false, decimals};
}

std::string number_text(double value, NumberForm form) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char buffer[400];  // the largest double has 309 digits before the decimal point
  const auto format = form.scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, format, form.decimals);
  std::string text(buffer, result.ptr);
  const bool minus_zero =
      text.front() == '-' && text.find_first_of("123456789") == std::string::npos;
  return minus_zero ? text.substr(1) : text;
}

std::string without_trailing_zeros(std::string fixed_point) {
  fixed_point.erase(fixed_point.find_last_not_of('0') + 1);
  if (fixed_point.back() == '.') fixed_point.pop_back();
  return fixed_point;
}

}  // namespace mini::detail
