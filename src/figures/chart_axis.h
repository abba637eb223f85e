// SPDX-License-Identifier: MIT
// Ends, ticks and tick labels of a chart's axis.
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
  /// Fits the axis to the values. Values that the axis cannot show are ignored.
  ChartAxis(const Axis& axis, const std::vector<double>& values);

  /// Whether the value is finite and, if the axis is logarithmic, above 0.
  bool shows(double value) const;
  /// Position of a value: 0 at the low end, 1 at the high end, outside [0, 1] beyond the ends.
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
