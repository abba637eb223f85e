// SPDX-License-Identifier: MIT
// The ends, the ticks and the numbers of a chart's axis.
#pragma once

#include <string>
#include <vector>

#include "mini/line_chart.h"

namespace mini::detail {

struct Tick {
  double value;
  std::string text;
};

class ChartAxis {
 public:
  /// An axis for these values; what it cannot show of them plays no part.
  ChartAxis(const Axis& axis, const std::vector<double>& values);

  /// Whether a value has a place: finite, and above 0 if the axis is logarithmic.
  bool shows(double value) const;
  /// From 0 at the low end to 1 at the high end, and beyond.
  double position(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void fit_to(const std::vector<double>& values);
  void set_ticks();

  Axis axis_;
  double low_ = 0, high_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace mini::detail
