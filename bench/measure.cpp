// SPDX-License-Identifier: MIT
#include "measure.h"

#include <algorithm>
#include <chrono>
#include <fstream>

namespace mini::app {

double seconds_of(const std::function<void()>& work, int64_t repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repeats; ++i) work();
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  return all.count() / static_cast<double>(repeats);
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

double relative_spread(const std::vector<double>& values) {
  return 0.5 * (quantile(values, 0.75) - quantile(values, 0.25)) / quantile(values, 0.5);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown processor";
}

}  // namespace mini::app
