// SPDX-License-Identifier: MIT
#include "gpt/heads_page.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/page.h"

namespace mini::app {

// page/heads.html with its styles and scripts, embedded at build time.
std::string_view heads_page_source();

namespace {

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

}  // namespace

std::string heads_page(Json data) { return page_with_data(heads_page_source(), std::move(data)); }

int64_t cells_of_heads_page(int64_t heads) {
  constexpr int64_t kMostCells = 128;
  constexpr double kMostBytesOfHeads = 40e6;
  constexpr double kBytesOfCell = 2 * sizeof(float) * 4 / 3.0;  // without and with the division
  const double cells = kMostBytesOfHeads / (kBytesOfCell * static_cast<double>(heads));
  return std::clamp(static_cast<int64_t>(std::sqrt(cells)), int64_t{1}, kMostCells);
}

std::string packed_cells(const detail::LargestInBins& bins, bool causal) {
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

}  // namespace mini::app
