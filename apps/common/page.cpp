// SPDX-License-Identifier: MIT
#include "common/page.h"

#include "figures/color_scale.h"

namespace mini::app {
namespace {

Json channels(detail::Color color) { return {color.red, color.green, color.blue}; }

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

std::string page_with_data(std::string_view source, Json data) {
  for (const detail::Color color : detail::kViridis) {
    data["colors"].push_back(channels(color));
  }
  data["nan_color"] = channels(detail::kNanColor);
  std::string json = data.dump();
  replace_all(json, "<", "\\u003c");  // a text with </script> would end the script element
  std::string html(source);
  replace_all(html, "@data@", json);
  return html;
}

}  // namespace mini::app
