// SPDX-License-Identifier: MIT
// Matrices as coloured grids: on a terminal, and as SVG.
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

/// A matrix to look at, and what is written beside it. Labels may be any text: what would break the
/// picture is replaced, what is too long cut.
struct HeatMap {
  at::Tensor values;  ///< (rows, columns), real numbers or truth values
  std::string title = {};
  std::vector<std::string> row_labels = {};     ///< one a row, or none: 0, 1, 2, ...
  std::vector<std::string> column_labels = {};  ///< one a column, or none: 0, 1, 2, ...
};

struct HeatMapOptions {
  /// Values at the dark and the bright end of the scale; unset is the smallest and the largest
  /// finite value of all maps. What lies beyond has the end's colour.
  std::optional<double> low = std::nullopt;
  std::optional<double> high = std::nullopt;
  /// Digits after the point, 0 to 4; unset is 2, or 0 where all maps hold integers. Numbers that
  /// this would not suit are written as 1.2e-05.
  std::optional<int> decimals = std::nullopt;
};

/// The grid as lines of text, each ended by a new line: cells in colour, with their values as far
/// as these fit, or plain numbers where the terminal shows no colours. Several maps stand side by
/// side, as far as they fit, on one scale.
///
/// Below them the scale, and how many values are NaN, infinity and -infinity: these have their own
/// colours. No line is wider than the terminal, or than 24 columns. Where a matrix has more columns
/// than fit, or more rows than are good to read, each cell shows the largest of several values (NaN
/// if there is one among them), and a line says so.
///
/// Throws c10::Error if a map is no matrix of real numbers or truth values, if its labels are not
/// as many as its rows or columns, or if an option or the terminal's width is out of range.
MINI_API std::string heat_map_text(const HeatMap& map, const HeatMapOptions& options = {},
                                   const Terminal& terminal = standard_output());
MINI_API std::string heat_map_text(const std::vector<HeatMap>& maps,
                                   const HeatMapOptions& options = {},
                                   const Terminal& terminal = standard_output());

/// The same as a whole SVG file; above 128 rows or columns a cell shows the largest of several
/// values. Throws as above.
MINI_API std::string heat_map_svg(const HeatMap& map, const HeatMapOptions& options = {});
MINI_API std::string heat_map_svg(const std::vector<HeatMap>& maps,
                                  const HeatMapOptions& options = {});

}  // namespace mini
