// SPDX-License-Identifier: MIT
// Heat maps of matrices, as text for a terminal and as SVG.
//
//   std::cout << mini::heat_map_text({weights});
//   std::ofstream("weights.svg") << mini::heat_map_svg({weights});
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "mini/export.h"
#include "mini/terminal.h"

namespace mini {

/// A matrix with its title and its labels.
///
/// Titles and labels may be any text. Control characters and invalid UTF-8 are replaced, and text
/// that does not fit is shortened.
struct HeatMap {
  at::Tensor values;  ///< (rows, columns), real or boolean
  std::string title = {};
  std::vector<std::string> row_labels = {};     ///< one per row; if empty: 0, 1, 2, ...
  std::vector<std::string> column_labels = {};  ///< one per column; if empty: 0, 1, 2, ...
};

/// Options for `heat_map_text` and `heat_map_svg`.
struct HeatMapOptions {
  /// Values at the dark and the bright end of the scale. If unset, they are the smallest and the
  /// largest finite value of all maps. Values beyond an end take the colour of that end.
  std::optional<double> low = std::nullopt;
  std::optional<double> high = std::nullopt;
  /// Digits after the decimal point, 0 to 4. If unset, 2 digits are shown, or none if no map has a
  /// floating dtype.
  /// If the largest magnitude is at least 1e6, or too small for these digits, all numbers are in
  /// scientific notation: 1.2e-05.
  std::optional<int> decimals = std::nullopt;
};

/// Returns the maps as lines of text. Each line ends in '\n'.
///
/// If the terminal has colours, each cell has the colour of its value; if the numbers fit, the cell
/// shows the number too. If the terminal has no colours, each cell is a number. The maps are side
/// by side if all of them fit, else stacked. All maps share one scale.
///
/// The lines below the maps show the scale and the counts of NaN, infinity and -infinity. These
/// values have their own colours. No line exceeds max(terminal.width, 24) columns.
///
/// If a matrix has more columns than fit or more than 60 rows, each cell shows the largest of
/// several values, or NaN if one of them is NaN. A line below gives the number of values per cell.
///
/// Throws c10::Error if `maps` is empty, if a map's values are not a real or boolean matrix, or if
/// the number of labels differs from the number of rows or columns. It also throws if `low` or
/// `high` is not finite, if low > high, if `decimals` is not 0 to 4, or if terminal.width < 1.
MINI_API std::string heat_map_text(const HeatMap& map, const HeatMapOptions& options = {},
                                   const Terminal& terminal = standard_output());
MINI_API std::string heat_map_text(const std::vector<HeatMap>& maps,
                                   const HeatMapOptions& options = {},
                                   const Terminal& terminal = standard_output());

/// Returns the maps as an SVG document. The cells of small maps show their numbers. If a matrix has
/// more than 128 rows or columns, each cell shows the largest of several values, as above.
/// Throws as above.
MINI_API std::string heat_map_svg(const HeatMap& map, const HeatMapOptions& options = {});
MINI_API std::string heat_map_svg(const std::vector<HeatMap>& maps,
                                  const HeatMapOptions& options = {});

}  // namespace mini
