// SPDX-License-Identifier: MIT
#include "page.h"

#include <fmt/format.h>

#include <string_view>

#include "app.h"
#include "color_scale.h"

namespace mini {

std::string_view page_source();  // apps/page/, made into one text at build time

namespace {

constexpr size_t kMostBytes = 300'000;
constexpr std::string_view kPageData = "@data@";  // stands for the data in page.html

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

Json channels(Color color) { return {color.red, color.green, color.blue}; }

}  // namespace

std::string page(Json data) {
  for (const Color color : kViridis) {
    data["colors"].push_back(channels(color));
  }
  data["nan_color"] = channels(kNanColor);
  std::string json = data.dump();
  replace(json, "<", "\\u003c");  // so that no text in it ends the element that holds it
  std::string html(page_source());
  replace(html, kPageData, json);
  if (html.size() > kMostBytes) {
    throw UsageError(
        fmt::format("--format html: expected matrices that fit a page of {} KB, got one of {} KB",
                    kMostBytes / 1000, html.size() / 1000));
  }
  return html;
}

double page_divisor(double scale, int64_t head_size) {
  const double divisor = 1 / scale, most = static_cast<double>(head_size);
  constexpr double kRounding = 1e-12;
  if (!(divisor >= 1 - kRounding && divisor <= most * (1 + kRounding))) {
    throw UsageError(fmt::format(
        "--scale: expected one from 1 / head size to 1, as the page's divisor goes, got {:g}",
        scale));
  }
  return divisor;
}

}  // namespace mini
