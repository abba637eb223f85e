// SPDX-License-Identifier: MIT
// HTML pages. Each page is one file that a browser shows without a network.
#pragma once

#include <string>
#include <string_view>

#include "common/report.h"

namespace mini::app {

/// Replaces each `from` in `text` by `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

/// Inserts `data` into the page `source` in place of @data@. Adds the colour scale to the data, as
/// the members `colors` and `nan_color`.
std::string page_with_data(std::string_view source, Json data);

}  // namespace mini::app
