// SPDX-License-Identifier: MIT
#include "page.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "app.h"
#include "color_scale.h"

namespace mini {

// From apps/page/, each made into one text at build time.
std::string_view page_source();
std::string_view heads_page_source();

namespace {

constexpr size_t kMostBytes = 300'000;
// What stands in the sources for a page's own.
constexpr std::string_view kPageTitle = "@title@";
constexpr std::string_view kPageData = "@data@";

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

Json channels(Color color) { return {color.red, color.green, color.blue}; }

// RFC 4648, section 4.
std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = i; j < i + 3; ++j) {
      bits = bits << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0u);
    }
    for (int shift = 18; shift >= 0; shift -= 6) {
      text += kDigits[bits >> shift & 0x3f];
    }
  }
  const size_t missing = (3 - bytes.size() % 3) % 3;
  return text.replace(text.size() - missing, missing, missing, '=');
}

std::string with_data(std::string_view source, Json data) {
  for (const Color color : kViridis) {
    data["colors"].push_back(channels(color));
  }
  data["nan_color"] = channels(kNanColor);
  std::string json = data.dump();
  replace(json, "<", "\\u003c");  // so that no text in it ends the element that holds it
  std::string html(source);
  replace(html, kPageData, json);
  return html;
}

}  // namespace

std::string page(std::string_view title, Json data) {
  std::string source(page_source());
  replace(source, kPageTitle, title);
  std::string html = with_data(source, std::move(data));
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

std::string heads_page(Json data) { return with_data(heads_page_source(), std::move(data)); }

int64_t cells_of_heads_page(int64_t heads) {
  constexpr int64_t kMostCells = 128;
  constexpr double kMostBytesOfHeads = 40e6;
  constexpr double kBytesOfCell = 2 * sizeof(float) * 4 / 3.0;  // without and with the division
  const double cells = kMostBytesOfHeads / (kBytesOfCell * static_cast<double>(heads));
  return std::clamp(static_cast<int64_t>(std::sqrt(cells)), int64_t{1}, kMostCells);
}

std::string packed_cells(const LargestInBins& bins, bool causal) {
  std::string bytes;
  for (int64_t i = 0; i < bins.rows(); ++i) {
    for (int64_t j = 0; j < (causal ? i + 1 : bins.columns()); ++j) {
      const double cell = bins.cells()[static_cast<size_t>(i * bins.columns() + j)];
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(cell));
      for (int shift = 0; shift < 32; shift += 8) {
        bytes += static_cast<char>(bits >> shift & 0xff);
      }
    }
  }
  return base64(bytes);
}

}  // namespace mini
