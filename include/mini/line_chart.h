// SPDX-License-Identifier: MIT
// Line charts as SVG.
//
//   std::ofstream("loss.svg") << mini::line_chart_svg({
//       .x = {.label = "step"},
//       .y = {.label = "loss (nats)"},
//       .curves = {{"training", steps, losses}},
//   });
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mini/export.h"

namespace mini {

/// One axis of a chart.
struct Axis {
  /// The quantity and its unit, such as "entropy (nats)".
  std::string label = {};
  /// Use a logarithmic scale.
  bool logarithmic = false;
  /// Values at the two ends. If unset, the axis covers all points.
  std::optional<double> low = std::nullopt;
  std::optional<double> high = std::nullopt;
  /// Values of the ticks. Ticks outside the axis are omitted. If empty, ticks are at round numbers.
  std::vector<double> ticks = {};
};

/// A sequence of points, joined in this order.
struct Curve {
  std::string name;
  std::vector<double> x, y;
  /// Draw a wide, light line behind the other curves, as a reference for comparison.
  bool reference = false;
};

/// A vertical line with a name. If `x` is outside the axis, the line is omitted.
struct ChartMark {
  std::string name;
  double x;
};

struct LineChart {
  std::string title = {};
  Axis x = {};
  Axis y = {};
  std::vector<Curve> curves = {};
  std::vector<ChartMark> marks = {};
};

/// Returns the chart as an SVG document. The legend names the curves, which differ in colour,
/// lightness and dash pattern.
///
/// A point is left out if a coordinate is NaN or infinite, or is not above 0 on a logarithmic axis.
/// The curve has a gap there, and a line below the chart counts the omitted points. Where several
/// points share a pixel column, the curve shows the first, the smallest, the largest and the last.
/// Colours: M. Okabe, K. Ito 2008, "Color Universal Design".
///
/// Throws c10::Error if a curve has different numbers of x and y values, or if an end of an axis is
/// not finite, if low >= high, or if an end of a logarithmic axis is not above 0.
MINI_API std::string line_chart_svg(const LineChart& chart);

/// Returns several charts of equal size as one SVG document, two charts per row. Throws as above,
/// and if `charts` is empty.
MINI_API std::string line_chart_svg(const std::vector<LineChart>& charts);

}  // namespace mini
