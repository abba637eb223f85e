// SPDX-License-Identifier: MIT
// The colour scale for numbers. It is perceptually uniform, and its order survives colour blindness
// and greyscale printing.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace mini::detail {

struct Color {
  uint8_t red, green, blue;
  bool operator==(const Color&) const = default;
};

/// Viridis at 0, 1/8, ..., 1, from dark violet to bright yellow.
/// Source: S. van der Walt, N. Smith 2015, matplotlib's default colour map (public domain).
inline constexpr std::array<Color, 9> kViridis = {{{0x44, 0x01, 0x54},
                                                   {0x47, 0x2d, 0x7b},
                                                   {0x3b, 0x52, 0x8b},
                                                   {0x2c, 0x72, 0x8e},
                                                   {0x21, 0x90, 0x8c},
                                                   {0x27, 0xad, 0x81},
                                                   {0x5d, 0xc8, 0x63},
                                                   {0xaa, 0xdc, 0x32},
                                                   {0xfd, 0xe7, 0x25}}};

/// Values without a place on the scale: white and black are beyond its ends, and NaN is red.
inline constexpr Color kPlusInfinityColor = {0xff, 0xff, 0xff};
inline constexpr Color kMinusInfinityColor = {0x00, 0x00, 0x00};
inline constexpr Color kNanColor = {0xd6, 0x27, 0x28};

/// Returns the colour at `position`, which is clamped to [0, 1].
Color color_at(double position);

/// Relative luminance, from 0 (black) to 1 (white).  Source: WCAG 2.2, "relative luminance".
double luminance(Color color);

/// Returns black or white, whichever has the higher contrast with `background`.
Color ink_on(Color background);

/// Returns the colour as "#472d7b".
std::string hex(Color color);

/// Returns the nearest of xterm's 256 colours, in its cube (16 to 231) or its greys (232 to 255).
int xterm_index(Color color);

}  // namespace mini::detail
