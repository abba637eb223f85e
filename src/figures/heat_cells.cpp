// SPDX-License-Identifier: MIT
#include "figures/heat_cells.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "strict_math.h"

namespace mini::detail {
namespace {

constexpr int kMostDecimals = 4;
constexpr int64_t kScientificWidth = 9;  // "-1.2e-300"
constexpr int64_t kOffScaleWidth = 4;    // "-inf"

void check_map(const char* function, const HeatMap& map) {
  TORCH_CHECK(map.values.defined(), function,
              ": expected a matrix (rows, columns), got an undefined tensor");
  TORCH_CHECK(map.values.dim() == 2, function, ": expected a matrix (rows, columns), got ",
              map.values.sizes());
  TORCH_CHECK(!map.values.is_complex(), function, ": expected real or boolean values, got ",
              map.values.scalar_type());
  for (const auto& [labels, what, dimension] :
       {std::tuple(&map.row_labels, "row", 0), {&map.column_labels, "column", 1}}) {
    const auto given = static_cast<int64_t>(labels->size());
    TORCH_CHECK(given == 0 || given == map.values.size(dimension), function,
                ": expected one label per ", what, ", got ", given, " for a matrix of ",
                map.values.sizes());
  }
}

void check_options(const char* function, const HeatMapOptions& options) {
  for (const auto& [name, end] : {std::pair("low", options.low), {"high", options.high}}) {
    TORCH_CHECK(std::isfinite(end.value_or(0.0)), function, ": expected a finite ", name, ", got ",
                end.value_or(0.0));
  }
  TORCH_CHECK(!options.low || !options.high || *options.low <= *options.high, function,
              ": expected low <= high, got ", options.low.value_or(0.0), " and ",
              options.high.value_or(0.0));
  const int decimals = options.decimals.value_or(0);
  TORCH_CHECK(decimals >= 0 && decimals <= kMostDecimals, function, ": expected 0 to ",
              kMostDecimals, " decimals, got ", decimals);
}

// The given labels, or 0, 1, 2, ...
std::vector<std::string> labels_of(const std::vector<std::string>& given, int64_t size) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < size; ++i) {
    labels.push_back(given.empty() ? std::to_string(i) : printable(given[static_cast<size_t>(i)]));
  }
  return labels;
}

// Labels 0, step, 2 step, ...
std::vector<std::string> every(const std::vector<std::string>& labels, int64_t step) {
  std::vector<std::string> some;
  for (size_t i = 0; i < labels.size(); i += static_cast<size_t>(step)) some.push_back(labels[i]);
  return some;
}

// The index in HeatScale::off_scale() of a value that is not finite.
size_t kind_of(double value) { return std::isnan(value) ? 0 : value > 0 ? 1 : 2; }

// Calls visit(row) for each row of a matrix, as doubles. Copies a few rows at a time, because a
// copy of the whole matrix may be too large.
template <typename Visit>
void for_each_row(const at::Tensor& matrix, const Visit& visit) {
  constexpr int64_t kValuesAtOnce = int64_t{1} << 16;
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const int64_t most = std::max<int64_t>(1, kValuesAtOnce / std::max<int64_t>(1, columns));
  for (int64_t first = 0; first < rows; first += most) {
    const at::Tensor block = matrix.narrow(0, first, std::min(most, rows - first))
                                 .to(at::device(at::kCPU).dtype(at::kDouble))
                                 .contiguous();  // (most, columns)
    for (int64_t i = 0; i < block.size(0); ++i) visit(block.const_data_ptr<double>() + i * columns);
  }
}

}  // namespace

std::vector<HeatMap> printable_maps(const char* function, const std::vector<HeatMap>& maps,
                                    const HeatMapOptions& options) {
  TORCH_CHECK(!maps.empty(), function, ": expected at least one map, got none");
  check_options(function, options);
  std::vector<HeatMap> result;
  for (const HeatMap& map : maps) {
    check_map(function, map);
    result.push_back({.values = map.values.detach(),
                      .title = printable(map.title),
                      .row_labels = labels_of(map.row_labels, map.values.size(0)),
                      .column_labels = labels_of(map.column_labels, map.values.size(1))});
  }
  return result;
}

HeatCells binned(const HeatMap& map, int64_t rows_each, int64_t columns_each) {
  const int64_t columns = map.values.size(1);
  LargestInBins bins(map.values.size(0), columns, rows_each, columns_each);
  for_each_row(map.values, [&](const double* row) { bins.add_row(row, columns); });
  return {.rows = bins.rows(),
          .columns = bins.columns(),
          .rows_each = rows_each,
          .columns_each = columns_each,
          .values = bins.cells(),
          .title = map.title,
          .row_labels = every(map.row_labels, rows_each),
          .column_labels = every(map.column_labels, columns_each)};
}

std::string binning_note(const HeatCells& cells) {
  if (cells.rows_each == 1 && cells.columns_each == 1) return "";
  return "Each cell shows the largest of up to " + std::to_string(cells.rows_each) + " x " +
         std::to_string(cells.columns_each) + " values.";
}

std::string empty_note(const HeatCells& cells) {
  return std::to_string(cells.rows) + " x " + std::to_string(cells.columns) + ": nothing to draw";
}

HeatScale::HeatScale(const std::vector<HeatMap>& maps, const HeatMapOptions& options) {
  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest;
  for (const HeatMap& map : maps) {
    for_each_row(map.values, [&, columns = map.values.size(1)](const double* row) {
      for (int64_t j = 0; j < columns; ++j) {
        if (std::isfinite(row[j])) {
          smallest = std::min(smallest, row[j]);
          largest = std::max(largest, row[j]);
        } else {
          ++off_scale_[kind_of(row[j])].count;
        }
      }
    });
  }
  has_values_ = smallest <= largest;
  if (has_values_) {
    low_ = options.low.value_or(std::min(smallest, options.high.value_or(smallest)));
    high_ = options.high.value_or(std::max(largest, options.low.value_or(largest)));
    const bool integers = std::ranges::none_of(
        maps, [](const HeatMap& map) { return map.values.is_floating_point(); });
    form_ = number_form(std::max({-smallest, largest, -low_, high_}),
                        options.decimals.value_or(integers ? 0 : 2));
    text_width_ = form_.scientific
                      ? kScientificWidth
                      : static_cast<int64_t>(std::max(text(smallest).size(), text(largest).size()));
  }
  for (const OffScale& kind : off_scale_) {
    text_width_ = std::max(text_width_, kind.count > 0 ? kOffScaleWidth : 0);
  }
}

Color HeatScale::color(double value) const {
  if (!std::isfinite(value)) return off_scale_[kind_of(value)].color;
  // high - low may overflow, the difference of the halves does not.
  return color_at(low_ < high_ ? (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2) : 0.5);
}

std::string HeatScale::mark(double value) const {
  return std::isfinite(value) ? "" : off_scale_[kind_of(value)].mark;
}

}  // namespace mini::detail
