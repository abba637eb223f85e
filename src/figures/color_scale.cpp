// SPDX-License-Identifier: MIT
#include "figures/color_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace mini::detail {
namespace {

constexpr int kFirstOfCube = 16;
constexpr int kFirstGrey = 232;
constexpr int kLastGrey = 255;

// xterm's colour of this index, in its cube or its greys.
Color xterm_color(int index) {
  constexpr std::array<uint8_t, 6> kLevels = {0, 95, 135, 175, 215, 255};
  if (index >= kFirstGrey) {
    const auto grey = static_cast<uint8_t>(8 + 10 * (index - kFirstGrey));
    return {grey, grey, grey};
  }
  const auto place = static_cast<size_t>(index - kFirstOfCube);
  return {kLevels[place / 36], kLevels[place / 6 % 6], kLevels[place % 6]};
}

int squared_distance(Color a, Color b) {
  const int red = a.red - b.red, green = a.green - b.green, blue = a.blue - b.blue;
  return red * red + green * green + blue * blue;
}

}  // namespace

Color color_at(double position) {
  constexpr double kLast = kViridis.size() - 1;
  const double place = std::clamp(position, 0.0, 1.0) * kLast;
  const auto below = static_cast<size_t>(std::min(place, kLast - 1));
  const double share = place - static_cast<double>(below);
  const auto between = [&](uint8_t from, uint8_t to) {
    return static_cast<uint8_t>(std::lround(from + share * (to - from)));
  };
  const Color from = kViridis[below], to = kViridis[below + 1];
  return {between(from.red, to.red), between(from.green, to.green), between(from.blue, to.blue)};
}

double luminance(Color color) {
  const auto linear = [](uint8_t channel) {
    const double c = channel / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue);
}

Color ink_on(Color background) {
  // Contrast is (brighter + 0.05) / (darker + 0.05). At a luminance of sqrt(1.05 * 0.05) - 0.05 =
  // 0.179, black and white have the same contrast.
  return luminance(background) > 0.179 ? Color{0, 0, 0} : Color{255, 255, 255};
}

std::string hex(Color color) {
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", color.red, color.green, color.blue);
  return text;
}

int xterm_index(Color color) {
  int best = kFirstOfCube;
  for (int index = kFirstOfCube + 1; index <= kLastGrey; ++index) {
    const int distance = squared_distance(color, xterm_color(index));
    if (distance < squared_distance(color, xterm_color(best))) best = index;
  }
  return best;
}

}  // namespace mini::detail
