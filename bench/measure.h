// SPDX-License-Identifier: MIT
// Timing, order statistics and the name of the processor, for the benchmarks.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mini::app {

/// Returns the mean time of `repeats` calls of `work`, in seconds.
double seconds_of(const std::function<void()>& work, int64_t repeats = 1);

/// Returns the value at position floor(share * (n - 1)) of the n sorted values: 0.5 is the median.
double quantile(std::vector<double> values, double share);

/// Returns half the distance between the quartiles, relative to the median.
double relative_spread(const std::vector<double>& values);

/// Returns the processor's name from /proc/cpuinfo.
std::string cpu_name();

}  // namespace mini::app
