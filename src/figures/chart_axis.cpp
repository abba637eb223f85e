// SPDX-License-Identifier: MIT
#include "figures/chart_axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "figures/display_text.h"

namespace mini::detail {
namespace {

constexpr double kMostTicks = 6;
constexpr double kFewDecades = 2.5;
constexpr double kRoomAtEnds = 0.03;  // fraction of a logarithmic axis
constexpr double kMostSteps = 1e12;   // from 0 to an end; doubles cannot resolve many more
constexpr double kRounding = 1e-9;

// The smallest of 1, 2 or 5 times a power of ten that is at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - kRounding)) return factor * power;
  }
  return 10 * power;
}

double tick_step(double low, double high) { return round_step((high - low) / kMostTicks); }

std::vector<double> linear_ticks(double low, double high) {
  const double step = tick_step(low, high);
  const double first = std::ceil(low / step - kRounding);
  const double count = std::min(std::floor(high / step + kRounding) - first, 2 * kMostTicks);
  std::vector<double> ticks;
  for (int i = 0; i <= count; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

// Powers of ten. If the axis covers few decades, 2 and 5 times these powers too.
std::vector<double> logarithmic_ticks(double low, double high) {
  const double decades = std::log10(high) - std::log10(low);
  if (decades < 1) return linear_ticks(low, high);
  const double step = std::ceil(decades / kMostTicks);
  const double first = std::ceil(std::floor(std::log10(low)) / step);
  std::vector<double> ticks;
  for (int i = 0; i <= 2 * kMostTicks; ++i) {
    const double power = std::pow(10, (first + i) * step);
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor == 1 || decades < kFewDecades) ticks.push_back(factor * power);
    }
  }
  return ticks;
}

std::string superscript(int number) {
  constexpr const char* kDigits[] = {"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                     "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string text = number < 0 ? "\u207b" : "";
  for (const char digit : std::to_string(std::abs(number))) text += kDigits[digit - '0'];
  return text;
}

// The number with at most six decimals and without trailing zeros: "0.05", "1024", "2·10⁻⁹".
std::string tick_text(double value) {
  const double size = std::abs(value);
  if (value == 0 || (size >= 1e-3 && size < 1e6)) {
    return without_trailing_zeros(number_text(value, {.scientific = false, .decimals = 6}));
  }
  const int exponent = static_cast<int>(std::floor(std::log10(size) + kRounding));
  const std::string power = "10" + superscript(exponent);
  const std::string factor = tick_text(value / std::pow(10, exponent));
  return factor == "1" ? power : factor + "\u00b7" + power;
}

}  // namespace

ChartAxis::ChartAxis(const Axis& axis, const std::vector<double>& values) : axis_(axis) {
  fit_to(values);
  set_ticks();
}

bool ChartAxis::shows(double value) const {
  return std::isfinite(value) && (!axis_.logarithmic || value > 0);
}

double ChartAxis::position(double value) const {
  return axis_.logarithmic ? (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_))
                           : (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
}

void ChartAxis::fit_to(const std::vector<double>& values) {
  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest;
  for (const double value : values) {
    if (shows(value)) {
      smallest = std::min(smallest, value);
      largest = std::max(largest, value);
    }
  }
  if (smallest > largest) {  // no value to show
    smallest = axis_.low.value_or(axis_.logarithmic ? 1 : 0);
    largest = axis_.logarithmic ? 10 * smallest : smallest + 1;
  }
  low_ = axis_.low.value_or(smallest);
  high_ = axis_.high.value_or(largest);
  if (low_ >= high_) {  // only one value, or all values are beyond the given end
    const double end = axis_.high ? high_ : low_;
    const double room = std::max(1.0, 0.1 * std::abs(end));
    low_ = axis_.low.value_or(axis_.logarithmic ? end / 2 : end - room);
    high_ = axis_.high.value_or(axis_.logarithmic ? end * 2 : end + room);
  }
  if (axis_.logarithmic) {
    const double room = std::pow(high_ / low_, kRoomAtEnds);
    low_ = axis_.low.value_or(low_ / room);
    high_ = axis_.high.value_or(high_ * room);
  } else if (const double step = tick_step(low_, high_);
             std::max(std::abs(low_), std::abs(high_)) < kMostSteps * step && std::isfinite(step)) {
    low_ = axis_.low.value_or(std::floor(low_ / step + kRounding) * step);
    high_ = axis_.high.value_or(std::ceil(high_ / step - kRounding) * step);
  }
}

void ChartAxis::set_ticks() {
  std::vector<double> values = axis_.ticks;
  if (values.empty()) {
    values = axis_.logarithmic ? logarithmic_ticks(low_, high_) : linear_ticks(low_, high_);
  }
  for (const double value : values) {
    if (shows(value) && position(value) >= -kRounding && position(value) <= 1 + kRounding) {
      ticks_.push_back({value, tick_text(value)});
    }
  }
}

}  // namespace mini::detail
