// SPDX-License-Identifier: MIT
#include "figures/color_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace mini::detail {
namespace {

constexpr std::array<int, 6> kCubeLevels = {0, 95, 135, 175, 215, 255};
constexpr int kFirstOfCube = 16;
constexpr int kFirstGrey = 232;
constexpr int kGreys = 24;

int grey_level(int index) { return 8 + 10 * index; }

int squared_distance(Color color, int red, int green, int blue) {
  const int r = color.red - red, g = color.green - green, b = color.blue - blue;
  return r * r + g * g + b * b;
}

int nearest_level(int value) {
  const auto* const nearest =
      std::min_element(kCubeLevels.begin(), kCubeLevels.end(),
                       [&](int a, int b) { return std::abs(a - value) < std::abs(b - value); });
  return static_cast<int>(nearest - kCubeLevels.begin());
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
  const int r = nearest_level(color.red), g = nearest_level(color.green),
            b = nearest_level(color.blue);
  int best = kFirstOfCube + 36 * r + 6 * g + b;
  int least =
      squared_distance(color, kCubeLevels[static_cast<size_t>(r)],
                       kCubeLevels[static_cast<size_t>(g)], kCubeLevels[static_cast<size_t>(b)]);
  for (int grey = 0; grey < kGreys; ++grey) {
    const int level = grey_level(grey);
    if (const int distance = squared_distance(color, level, level, level); distance < least) {
      least = distance;
      best = kFirstGrey + grey;
    }
  }
  return best;
}

}  // namespace mini::detail
