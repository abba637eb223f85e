// SPDX-License-Identifier: MIT
// What the drawings of a heat map share: checked values, cells that stand for several of them, and
// the scale from values to colours.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "figures/color_scale.h"
#include "figures/display_text.h"
#include "mini/heat_map.h"

namespace mini::detail {

/// The cells of one map.
struct HeatCells {
  int64_t rows = 0, columns = 0;            // of cells
  int64_t rows_each = 1, columns_each = 1;  // values that a cell stands for
  std::vector<double> values;               // row by row
  std::string title;
  std::vector<std::string> row_labels, column_labels;  // those of each cell's first row and column

  double at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }
};

/// The maps with texts made printable, and a label for every row and column.  Checks them and the
/// options; messages begin with `function`.
std::vector<HeatMap> printable_maps(const char* function, const std::vector<HeatMap>& maps,
                                    const HeatMapOptions& options);

/// The cells of a printable map: each shows the largest of rows_each x columns_each values, NaN if
/// there is one.
HeatCells binned(const HeatMap& map, int64_t rows_each, int64_t columns_each);

/// "Each cell shows the largest of up to 3 x 3 values.", or nothing where each shows one.
std::string binning_note(const HeatCells& cells);

/// One scale for all maps.
class HeatScale {
 public:
  HeatScale(const std::vector<HeatMap>& maps, const HeatMapOptions& options);

  Color color(double value) const;
  std::string text(double value) const { return number_text(value, form_); }
  /// No value's text is longer.
  int64_t text_width() const { return text_width_; }
  /// The number at a share of the way from the low to the high end.
  double value_at(double position) const { return low_ * (1 - position) + high_ * position; }
  /// Whether there is any finite value, and so a scale at all.
  bool has_values() const { return has_values_; }

  /// A kind of value that the scale has no place for.
  struct OffScale {
    double value;
    const char* name;
    const char* mark;  // one character, where there is no room for a number
    Color color;
    int64_t count = 0;
  };
  const std::array<OffScale, 3>& off_scale() const { return off_scale_; }
  /// The mark of a value that is off the scale, or "".
  std::string mark(double value) const;

 private:
  double low_ = 0.0, high_ = 0.0;
  bool has_values_ = false;
  int64_t text_width_ = 0;
  NumberForm form_{};
  std::array<OffScale, 3> off_scale_ = {{{NAN, "NaN", "\u00d7", kNanColor},
                                         {INFINITY, "infinity", "\u25b2", kPlusInfinityColor},
                                         {-INFINITY, "-infinity", "\u25bc", kMinusInfinityColor}}};
};

}  // namespace mini::detail
