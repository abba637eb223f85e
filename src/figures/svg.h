// SPDX-License-Identifier: MIT
// Writes an SVG image, one element after the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mini::detail {

/// An image with a white background, which is readable on any page. Lengths are in pixels; y points
/// downwards.
class Svg {
 public:
  static constexpr const char* kInk = "#1f2328";
  static constexpr const char* kFaint = "#59636e";
  static constexpr const char* kGrid = "#d1d9e0";

  // The layout that all figures share.
  static constexpr double kMargin = 16;
  static constexpr double kTextSize = 11;
  static constexpr double kTextGap = 6;  ///< between text and what it names
  static constexpr double kTitleSize = 13;
  static constexpr double kTitleHeight = 24;

  struct TextStyle {
    double size = kTextSize;
    const char* anchor = "start";  ///< "start", "middle" or "end"
    std::string fill = kInk;
    bool bold = false;
    bool upwards = false;  ///< rotated to read from bottom to top
  };
  struct Stroke {
    std::string color = kInk;
    double width = 1;
    const char* dashes = "";  ///< lengths of dashes and gaps, such as "6 3"
  };

  /// `y` is the middle of the letters. `content` may be any text.
  void text(double x, double y, std::string_view content, const TextStyle& style);
  void rectangle(double x, double y, double width, double height, std::string_view fill);
  void circle(double x, double y, double radius, std::string_view fill);
  /// `data` is the attribute d of <path>, such as "M0 0L10 10".
  void path(std::string_view data, const Stroke& stroke);
  /// Clips the elements up to close_window() to this rectangle. Coordinates do not change.
  void open_window(double x, double y, double width, double height);
  void close_window();
  /// Turns off anti-aliasing up to close_sharp_edges(), so that adjacent cells have no seam.
  void open_sharp_edges();
  void close_sharp_edges();

  /// Returns the whole document. Screen readers read the title.
  std::string document(double width, double height, std::string_view title) const;

 private:
  std::string body_;
};

/// Rounds a coordinate to a hundredth of a pixel: "12", "3.5", "-0.25".
std::string coordinate(double value);
/// Returns "x y", as in the data of a path.
std::string point(double x, double y);

/// Escapes text for an element's content or an attribute's value.
std::string xml_text(std::string_view text);

/// Estimates the width of printable text, or of this many columns. The font is unknown, so a column
/// is 0.6 times the font size.
double text_width(int64_t columns, double size = Svg::kTextSize);
double text_width(std::string_view printable_text, double size = Svg::kTextSize);

/// Returns the titles of the drawings, separated by commas, or `untitled` if all titles are empty.
template <typename Drawing>
std::string joined_titles(const std::vector<Drawing>& drawings, const char* untitled) {
  std::string titles;
  for (const Drawing& drawing : drawings) {
    titles += (titles.empty() || drawing.title.empty() ? "" : ", ") + drawing.title;
  }
  return titles.empty() ? untitled : titles;
}

}  // namespace mini::detail
