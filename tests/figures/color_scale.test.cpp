// SPDX-License-Identifier: MIT
#include "figures/color_scale.h"

#include <cmath>

#include "support/support.h"

using namespace mini;

namespace {

// CIE 1976 lightness, from 0 for black to 100 for white.
double lightness(mini::detail::Color color) {
  const double y = mini::detail::luminance(color);
  return y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
}

}  // namespace

TEST_CASE("the colour scale begins in dark violet and ends in yellow", "[color_scale]") {
  CHECK(mini::detail::hex(mini::detail::color_at(0)) == "#440154");
  CHECK(mini::detail::hex(mini::detail::color_at(0.5)) == "#21908c");
  CHECK(mini::detail::hex(mini::detail::color_at(1)) == "#fde725");
  CHECK(mini::detail::hex(mini::detail::color_at(1.0 / 16)) ==
        "#461768");  // halfway between the first two
  CHECK(mini::detail::color_at(-3) == mini::detail::color_at(0));
  CHECK(mini::detail::color_at(7) == mini::detail::color_at(1));
}

TEST_CASE("equal steps on the colour scale are equal steps in lightness", "[color_scale]") {
  constexpr int kSteps = 20;
  const double whole = lightness(mini::detail::color_at(1)) - lightness(mini::detail::color_at(0));
  CHECK(whole > 70);  // most of what grey has to offer
  for (int i = 0; i < kSteps; ++i) {
    INFO("step " << i);
    const double step = lightness(mini::detail::color_at((i + 1.0) / kSteps)) -
                        lightness(mini::detail::color_at(i * 1.0 / kSteps));
    CHECK(std::abs(step - whole / kSteps) < 0.25 * whole / kSteps);
  }
}

TEST_CASE("luminance is that of WCAG, and ink stands out by 4.5 to 1", "[color_scale]") {
  CHECK(mini::detail::luminance({0, 0, 0}) == 0);
  CHECK(std::abs(mini::detail::luminance({255, 255, 255}) - 1) < 1e-12);
  CHECK(std::abs(mini::detail::luminance({255, 0, 0}) - 0.2126) < 1e-12);
  const auto contrast = [](mini::detail::Color a, mini::detail::Color b) {
    return (std::max(mini::detail::luminance(a), mini::detail::luminance(b)) + 0.05) /
           (std::min(mini::detail::luminance(a), mini::detail::luminance(b)) + 0.05);
  };
  for (int i = 0; i <= 100; ++i) {
    const mini::detail::Color color = mini::detail::color_at(i / 100.0);
    CHECK(contrast(color, mini::detail::ink_on(color)) >= 4.5);
  }
  for (const mini::detail::Color color : {mini::detail::kNanColor, mini::detail::kPlusInfinityColor,
                                          mini::detail::kMinusInfinityColor}) {
    CHECK(contrast(color, mini::detail::ink_on(color)) >= 4.5);
  }
}

TEST_CASE("terminals of 256 colours get the nearest", "[color_scale]") {
  CHECK(mini::detail::xterm_index({0, 0, 0}) == 16);
  CHECK(mini::detail::xterm_index({255, 255, 255}) == 231);
  CHECK(mini::detail::xterm_index({255, 0, 0}) == 196);
  CHECK(mini::detail::xterm_index({95, 135, 175}) == 67);
  CHECK(mini::detail::xterm_index({128, 128, 128}) == 244);
  CHECK(mini::detail::xterm_index({9, 8, 8}) == 232);
}
