// SPDX-License-Identifier: MIT
#include "figures/color_scale.h"

#include <cmath>

#include "support/support.h"

using namespace mini::detail;

namespace {

// CIE 1976 lightness, from 0 (black) to 100 (white).
double lightness(Color color) {
  const double y = luminance(color);
  return y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
}

}  // namespace

TEST_CASE("the colour scale runs from dark violet to yellow and clamps positions",
          "[color_scale]") {
  CHECK(hex(color_at(0)) == "#440154");
  CHECK(hex(color_at(0.5)) == "#21908c");
  CHECK(hex(color_at(1)) == "#fde725");
  CHECK(hex(color_at(1.0 / 16)) == "#461768");  // halfway between the first two colours
  CHECK(color_at(-3) == color_at(0));
  CHECK(color_at(7) == color_at(1));
}

TEST_CASE("equal steps on the colour scale are equal steps in lightness", "[color_scale]") {
  constexpr int kSteps = 20;
  const double whole = lightness(color_at(1)) - lightness(color_at(0));
  CHECK(whole > 70);  // most of the range from black to white, 100
  for (int i = 0; i < kSteps; ++i) {
    INFO("step " << i);
    const double step =
        lightness(color_at((i + 1.0) / kSteps)) - lightness(color_at(i * 1.0 / kSteps));
    CHECK(std::abs(step - whole / kSteps) < 0.25 * whole / kSteps);
  }
}

TEST_CASE("ink has a WCAG contrast of at least 4.5 on every colour of the scale", "[color_scale]") {
  CHECK(luminance({0, 0, 0}) == 0);
  CHECK(std::abs(luminance({255, 255, 255}) - 1) < 1e-12);
  CHECK(std::abs(luminance({255, 0, 0}) - 0.2126) < 1e-12);
  const auto contrast = [](Color a, Color b) {
    return (std::max(luminance(a), luminance(b)) + 0.05) /
           (std::min(luminance(a), luminance(b)) + 0.05);
  };
  for (int i = 0; i <= 100; ++i) {
    const Color color = color_at(i / 100.0);
    CHECK(contrast(color, ink_on(color)) >= 4.5);
  }
  for (const Color color : {kNanColor, kPlusInfinityColor, kMinusInfinityColor}) {
    CHECK(contrast(color, ink_on(color)) >= 4.5);
  }
}

TEST_CASE("xterm_index returns the nearest of 256 colours", "[color_scale]") {
  CHECK(xterm_index({0, 0, 0}) == 16);
  CHECK(xterm_index({255, 255, 255}) == 231);
  CHECK(xterm_index({255, 0, 0}) == 196);
  CHECK(xterm_index({95, 135, 175}) == 67);
  CHECK(xterm_index({128, 128, 128}) == 244);
  CHECK(xterm_index({9, 8, 8}) == 232);
}
