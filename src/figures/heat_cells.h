// SPDX-License-Identifier: MIT
// The parts that text and SVG heat maps share: checked input, cells, and the scale from values to
// colours.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "figures/color_scale.h"
#include "figures/display_text.h"
#include "figures/heat_bins.h"
#include "mini/heat_map.h"

namespace mini::detail {

/// The cells of one map.
struct HeatCells {
  int64_t rows = 0, columns = 0;            ///< of cells
  int64_t rows_each = 1, columns_each = 1;  ///< values per cell
  std::vector<double> values;               ///< one per cell, in row-major order
  std::string title;
  std::vector<std::string> row_labels, column_labels;  ///< of the first row and column of each cell

  double at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * columns + column)];
  }
};

/// Checks the maps and the options; error messages begin with `function`.  Returns the maps with
/// printable text and a label for every row and column.
std::vector<HeatMap> printable_maps(const char* function, const std::vector<HeatMap>& maps,
                                    const HeatMapOptions& options);

/// Returns how many of `count` values share a cell if there are at most `most_cells` cells.
inline int64_t values_per_cell(int64_t count, int64_t most_cells) {
  return std::max<int64_t>(1, ceil_div(count, most_cells));
}

/// Reduces a printable map to cells.  A cell is the largest of rows_each x columns_each values, or
/// NaN if one of them is NaN.
HeatCells binned(const HeatMap& map, int64_t rows_each, int64_t columns_each);

/// "Each cell shows the largest of up to 3 x 3 values.", or "" if each cell shows one value.
std::string binning_note(const HeatCells& cells);

/// What a map without cells shows instead: "0 x 3: nothing to draw".
std::string empty_note(const HeatCells& cells);

/// The scale that all maps share.
class HeatScale {
 public:
  HeatScale(const std::vector<HeatMap>& maps, const HeatMapOptions& options);

  Color color(double value) const;
  std::string text(double value) const { return number_text(value, form_); }
  /// An upper bound on the length of a value's text.
  int64_t text_width() const { return text_width_; }
  /// The value at a position on the scale: 0 is the low end, 1 the high end.
  double value_at(double position) const { return low_ * (1 - position) + high_ * position; }
  /// Whether any value is finite. If not, there is no scale.
  bool has_values() const { return has_values_; }

  /// A value that is not finite, and how often it occurs.
  struct OffScale {
    double value;
    const char* name;
    const char* mark;  ///< one character, for cells without numbers
    Color color;
    int64_t count = 0;

    std::string text() const { return std::to_string(count) + ' ' + name; }
  };
  const std::array<OffScale, 3>& off_scale() const { return off_scale_; }
  /// The mark of a value that is not finite, or "".
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
