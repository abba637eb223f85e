// SPDX-License-Identifier: MIT
#include "files/path_text.h"

#include <charconv>
#include <cstdio>
#include <string_view>

#include "files/utf8.h"

namespace mini::detail {
namespace {

constexpr std::string_view kScheme = "file://";

// The characters that a URI's path holds as they are: RFC 3986, section 2.3, and '/'.
bool is_unreserved(char c) {
  constexpr std::string_view kOthers = "-._~/";
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         kOthers.find(c) != std::string_view::npos;
}

}  // namespace

std::string path_text(const std::filesystem::path& path) {
  const std::string& bytes = path.native();
  if (is_utf8(bytes)) return bytes;
  std::string text(kScheme);
  for (const char c : bytes) {
    char encoded[4] = {c};
    if (!is_unreserved(c)) {
      std::snprintf(encoded, sizeof encoded, "%%%02X", static_cast<unsigned char>(c));
    }
    text += encoded;
  }
  return text;
}

std::filesystem::path path_of(const std::string& text) {
  if (!text.starts_with(kScheme)) return text;
  std::string bytes;
  for (std::size_t i = kScheme.size(); i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      bytes += static_cast<char>(byte);
      i += 2;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

}  // namespace mini::detail
