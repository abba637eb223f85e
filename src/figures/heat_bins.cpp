// SPDX-License-Identifier: MIT
#include "figures/heat_bins.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strict_math.h"

namespace mini::detail {
namespace {

double larger_or_nan(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

}  // namespace

LargestInBins::LargestInBins(int64_t rows, int64_t columns, int64_t rows_each, int64_t columns_each)
    : rows_(ceil_div(rows, rows_each)),
      columns_(ceil_div(columns, columns_each)),
      rows_each_(rows_each),
      columns_each_(columns_each),
      cells_(static_cast<size_t>(rows_ * columns_), -std::numeric_limits<double>::infinity()) {}

template <typename Number>
void LargestInBins::add_row(const Number* values, int64_t count) {
  double* cell = cells_.data() + next_row_ / rows_each_ * columns_;
  for (int64_t begin = 0; begin < count; begin += columns_each_, ++cell) {
    double largest = *cell;
    for (int64_t j = begin; j < std::min(begin + columns_each_, count); ++j) {
      largest = larger_or_nan(largest, values[j]);
    }
    *cell = largest;
  }
  ++next_row_;
}

template void LargestInBins::add_row(const double* values, int64_t count);
template void LargestInBins::add_row(const float* values, int64_t count);

}  // namespace mini::detail
