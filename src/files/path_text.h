// SPDX-License-Identifier: MIT
// Paths as UTF-8 text. A path is a sequence of bytes, and JSON holds only UTF-8.
#pragma once

#include <filesystem>
#include <string>

namespace mini::detail {

/// The absolute `path` as text. If its bytes are not UTF-8, the text is a URI with percent-encoded
/// bytes, such as file:///home/t%E9xt.txt. Source: RFC 8089.
std::string path_text(const std::filesystem::path& path);

/// The path of a text from `path_text`.
std::filesystem::path path_of(const std::string& text);

}  // namespace mini::detail
