// SPDX-License-Identifier: MIT
// A large matrix in few cells, from rows that come one by one: all of them at once may be too much.
#pragma once

#include <cstdint>
#include <vector>

namespace mini::detail {

/// The cells of a matrix (rows, columns), each the largest of rows_each x columns_each values, NaN
/// if there is one among them.
class LargestInBins {
 public:
  LargestInBins(int64_t rows, int64_t columns, int64_t rows_each, int64_t columns_each);

  /// Takes the next row, or its first `count` values where the others do not matter.
  void add_row(const double* values, int64_t count);
  void add_row(const float* values, int64_t count);

  int64_t rows() const { return rows_; }  // of cells
  int64_t columns() const { return columns_; }
  /// Row by row; -infinity where no value has come.
  const std::vector<double>& cells() const { return cells_; }

 private:
  template <typename Number>
  void take(const Number* values, int64_t count);

  int64_t rows_, columns_, rows_each_, columns_each_;
  int64_t next_row_ = 0;  // of the matrix
  std::vector<double> cells_;
};

}  // namespace mini::detail
