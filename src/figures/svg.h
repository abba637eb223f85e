// SPDX-License-Identifier: MIT
// An SVG image, written element by element.
#pragma once

#include <string>
#include <string_view>

namespace mini::detail {

/// Draws on white, so that an image is readable on any page. Lengths are in pixels, y downwards.
class Svg {
 public:
  static constexpr const char* kInk = "#1f2328";
  static constexpr const char* kFaint = "#59636e";
  static constexpr const char* kGrid = "#d1d9e0";
  /// An average character of the font, as a share of its size: no more can be known here.
  static constexpr double kCharacterWidth = 0.6;

  struct TextStyle {
    double size = 11;
    const char* anchor = "start";  ///< or "middle", "end"
    std::string fill = kInk;
    bool bold = false;
    bool upwards = false;  ///< written from below to above
  };
  struct Stroke {
    std::string color = kInk;
    double width = 1;
    const char* dashes = "";  ///< lengths of dashes and gaps: "6 3"
  };

  /// `y` is the middle of the letters. `content` is any text.
  void text(double x, double y, std::string_view content, const TextStyle& style);
  void rectangle(double x, double y, double width, double height, std::string_view fill);
  void circle(double x, double y, double radius, std::string_view fill);
  /// `data` as in the attribute d of <path>: "M0 0L10 10".
  void path(std::string_view data, const Stroke& stroke);
  /// What follows is drawn in a window onto these pixels, its coordinates being the image's, until
  /// close_window().
  void open_window(double x, double y, double width, double height);
  void close_window();
  /// What follows has edges that are not smoothed, so that cells touch without a seam.
  void open_sharp_edges();
  void close_sharp_edges();

  /// The image of this size; `title` is what a screen reader says of it.
  std::string document(double width, double height, std::string_view title) const;

 private:
  std::string body_;
};

/// A coordinate to a hundredth of a pixel: "12", "3.5", "-0.25".
std::string coordinate(double value);

/// Text for an element's content or an attribute's value, with &, <, > and " written as entities.
std::string xml_text(std::string_view text);

}  // namespace mini::detail
