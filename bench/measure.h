// SPDX-License-Identifier: MIT
// What the benchmarks share: a clock, order statistics, the processor's name.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mini::app {

/// Seconds that one call of `work` takes, as the mean over `repeats` calls.
double seconds_of(const std::function<void()>& work, int64_t repeats = 1);

/// The smallest value that at least this share of the values does not exceed.
double quantile(std::vector<double> values, double share);

/// Half the distance between the quartiles, relative to the median.
double relative_spread(const std::vector<double>& values);

/// As /proc/cpuinfo gives it.
std::string cpu_name();

}  // namespace mini::app
