// SPDX-License-Identifier: MIT
// Reduces a large matrix to few cells, row by row, so that the matrix need not be in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace mini::detail {

/// ceil(a / b), for a >= 0 and b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Reduces a matrix (rows, columns) to cells of rows_each x columns_each values. A cell is the
/// largest of its values, or NaN if one of them is NaN.
class LargestInBins {
 public:
  LargestInBins(int64_t rows, int64_t columns, int64_t rows_each, int64_t columns_each);

  /// Adds the next row. Number is double or float. If `count` is less than `columns`, the other
  /// values are ignored.
  template <typename Number>
  void add_row(const Number* values, int64_t count);

  int64_t rows() const { return rows_; }        ///< of cells
  int64_t columns() const { return columns_; }  ///< of cells
  /// In row-major order. A cell without values is -infinity.
  const std::vector<double>& cells() const { return cells_; }

 private:
  int64_t rows_, columns_, rows_each_, columns_each_;
  int64_t next_row_ = 0;  // row of the matrix
  std::vector<double> cells_;
};

}  // namespace mini::detail
