// SPDX-License-Identifier: MIT
// Pages: each is one HTML file that a browser shows without network.
#pragma once

#include <string>
#include <string_view>

#include "common/report.h"

namespace mini::app {

/// Replaces each `from` in `text` by `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

/// The page `source` with `data` in it, to which the colour scale is added: `colors` and
/// `nan_color`.
std::string page_with_data(std::string_view source, Json data);

}  // namespace mini::app
