// SPDX-License-Identifier: MIT
#include "figures/svg.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "figures/display_text.h"

namespace mini::detail {
namespace {

using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// The tag without its end: attributes of no value are left out.
std::string open_tag(std::string_view name, const Attributes& attributes) {
  std::string tag = "<" + std::string(name);
  for (const auto& [attribute, value] : attributes) {
    if (!value.empty()) {
      tag.append(" ").append(attribute).append("=\"").append(xml_text(value)).append("\"");
    }
  }
  return tag;
}

}  // namespace

std::string coordinate(double value) {
  char buffer[64];
  constexpr double kFarAway = 1e6;  // pixels: beyond any image
  const double near = std::clamp(value, -kFarAway, kFarAway);
  const double hundredths = std::round(near * 100) / 100 + 0.0;  // no -0
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, hundredths, std::chars_format::fixed, 2);
  std::string text(buffer, result.ptr);
  text.erase(text.find_last_not_of('0') + 1);
  return text.back() == '.' ? text.substr(0, text.size() - 1) : text;
}

std::string xml_text(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

void Svg::text(double x, double y, std::string_view content, const TextStyle& style) {
  if (content.empty()) {
    return;
  }
  // Few programs but browsers know dominant-baseline: the baseline is a third of the size below.
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
  body_ += open_tag("rect", {{"x", coordinate(x)},
                             {"y", coordinate(y)},
                             {"width", coordinate(width)},
                             {"height", coordinate(height)},
                             {"fill", fill}});
  body_ += "/>\n";
}

void Svg::circle(double x, double y, double radius, std::string_view fill) {
  body_ += open_tag(
      "circle",
      {{"cx", coordinate(x)}, {"cy", coordinate(y)}, {"r", coordinate(radius)}, {"fill", fill}});
  body_ += "/>\n";
}

void Svg::path(std::string_view data, const Stroke& stroke) {
  body_ += open_tag("path", {{"d", data},
                             {"fill", "none"},
                             {"stroke", stroke.color},
                             {"stroke-width", stroke.width == 1 ? "" : coordinate(stroke.width)},
                             {"stroke-dasharray", stroke.dashes}});
  body_ += "/>\n";
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
         open_tag("rect", {{"width", wide}, {"height", high}, {"fill", "#ffffff"}}) + "/>\n" +
         body_ + "</svg>\n";
}

}  // namespace mini::detail
