// SPDX-License-Identifier: MIT
#include "figures/svg.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "figures/display_text.h"

namespace mini::detail {
namespace {

using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// An opening tag without its '>'. Attributes with an empty value are omitted.
std::string open_tag(std::string_view name, const Attributes& attributes) {
  std::string tag = "<" + std::string(name);
  for (const auto& [attribute, value] : attributes) {
    if (!value.empty()) {
      tag.append(" ").append(attribute).append("=\"").append(xml_text(value)).append("\"");
    }
  }
  return tag;
}

std::string empty_element(std::string_view name, const Attributes& attributes) {
  return open_tag(name, attributes) + "/>\n";
}

}  // namespace

std::string coordinate(double value) {
  constexpr double kFarAway = 1e6;  // outside any image
  const double near = std::clamp(value, -kFarAway, kFarAway);
  const double hundredths = std::round(near * 100) / 100;
  return without_trailing_zeros(number_text(hundredths, {.scientific = false, .decimals = 2}));
}

std::string point(double x, double y) { return coordinate(x) + ' ' + coordinate(y); }

std::string xml_text(std::string_view text) {
  constexpr std::string_view kSpecial = "&<>\"";
  constexpr const char* kEscapes[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string escaped;
  for (const char c : printable(text)) {
    const size_t special = kSpecial.find(c);
    if (special == std::string_view::npos) {
      escaped += c;
    } else {
      escaped += kEscapes[special];
    }
  }
  return escaped;
}

double text_width(int64_t columns, double size) {
  constexpr double kColumnWidth = 0.6;  // of a sans-serif font, relative to its size
  return static_cast<double>(columns) * size * kColumnWidth;
}

double text_width(std::string_view printable_text, double size) {
  return text_width(display_width(printable_text), size);
}

void Svg::text(double x, double y, std::string_view content, const TextStyle& style) {
  if (content.empty()) return;
  // Few programs other than browsers support dominant-baseline, so y moves down to the baseline.
  const double down = 0.35 * style.size;
  const std::string at_x = coordinate(style.upwards ? x + down : x),
                    at_y = coordinate(style.upwards ? y : y + down);
  body_ += open_tag("text",
                    {{"x", at_x},
                     {"y", at_y},
                     {"font-size", coordinate(style.size)},
                     {"text-anchor", style.anchor == std::string_view("start") ? "" : style.anchor},
                     {"font-weight", style.bold ? "bold" : ""},
                     {"fill", style.fill == kInk ? "" : style.fill},
                     {"transform", style.upwards ? "rotate(-90 " + at_x + ' ' + at_y + ')' : ""}});
  body_ += ">" + xml_text(content) + "</text>\n";
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view fill) {
  body_ += empty_element("rect", {{"x", coordinate(x)},
                                  {"y", coordinate(y)},
                                  {"width", coordinate(width)},
                                  {"height", coordinate(height)},
                                  {"fill", fill}});
}

void Svg::circle(double x, double y, double radius, std::string_view fill) {
  body_ += empty_element(
      "circle",
      {{"cx", coordinate(x)}, {"cy", coordinate(y)}, {"r", coordinate(radius)}, {"fill", fill}});
}

void Svg::path(std::string_view data, const Stroke& stroke) {
  body_ +=
      empty_element("path", {{"d", data},
                             {"fill", "none"},
                             {"stroke", stroke.color},
                             {"stroke-width", stroke.width == 1 ? "" : coordinate(stroke.width)},
                             {"stroke-dasharray", stroke.dashes}});
}

void Svg::open_window(double x, double y, double width, double height) {
  const std::string left = coordinate(x), top = coordinate(y), wide = coordinate(width),
                    high = coordinate(height);
  body_ += open_tag("svg", {{"x", left},
                            {"y", top},
                            {"width", wide},
                            {"height", high},
                            {"viewBox", left + ' ' + top + ' ' + wide + ' ' + high}});
  body_ += ">\n";
}

void Svg::close_window() { body_ += "</svg>\n"; }

void Svg::open_sharp_edges() { body_ += "<g shape-rendering=\"crispEdges\">\n"; }

void Svg::close_sharp_edges() { body_ += "</g>\n"; }

std::string Svg::document(double width, double height, std::string_view title) const {
  const std::string wide = coordinate(width), high = coordinate(height);
  return open_tag("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                          {"width", wide},
                          {"height", high},
                          {"viewBox", "0 0 " + wide + ' ' + high},
                          {"role", "img"},
                          {"font-family", "system-ui, sans-serif"},
                          {"fill", kInk}}) +
         ">\n<title>" + xml_text(title) + "</title>\n" +
         empty_element("rect", {{"width", wide}, {"height", high}, {"fill", "#ffffff"}}) + body_ +
         "</svg>\n";
}

}  // namespace mini::detail
