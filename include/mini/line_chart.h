// SPDX-License-Identifier: MIT
// Curves as SVG.
//
//   std::ofstream("loss.svg") << mini::line_chart_svg(
//       {.x = {.label = "step"}, .y = {.label = "loss (nats)"}, .curves = {{"training", steps,
//       losses}}});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mini/export.h"

namespace mini {

struct Axis {
  /// What is measured, with its unit: "entropy (nats)".
  std::string label = {};
  bool logarithmic = false;
  /// Ends of the axis; unset is what the points need.
  std::optional<double> low = std::nullopt;
  std::optional<double> high = std::nullopt;
  /// Where numbers stand; none is round numbers.
  std::vector<double> ticks = {};
};

/// Points joined in their order.
struct Curve {
  std::string name;
  std::vector<double> x, y;
  /// What the others are to be compared with: a broad light line below them.
  bool reference = false;
};

/// A place on the x axis that has a name.
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

/// The chart as a whole SVG file: curves that differ in colour, lightness and dashes, with a
/// legend.
///
/// A curve has a gap where a point is NaN, infinite, or not above 0 on a logarithmic axis; a line
/// below the chart counts these points. More points than pixels are drawn as what they cover.
/// Colours: M. Okabe, K. Ito 2008, "Color Universal Design".
///
/// Throws c10::Error if a curve has more x than y or fewer, or if an axis has an end that is not
/// finite, low >= high, or low <= 0 and is logarithmic.
MINI_API std::string line_chart_svg(const LineChart& chart);

/// Charts of one size, two to a row.
MINI_API std::string line_chart_svg(const std::vector<LineChart>& charts);

}  // namespace mini
