// SPDX-License-Identifier: MIT
// The options that all benchmarks have.
#pragma once

#include <string>
#include <vector>

#include "common/app.h"

namespace mini::app {

struct BenchOptions {
  std::string filter;
  std::vector<int> threads = {1, 2};
  bool default_malloc = false;

  /// Whether `name` contains the text of --filter.
  bool selects(const std::string& name) const { return name.find(filter) != std::string::npos; }
};

/// Adds --filter, --threads and --default-malloc. `names` says what --filter searches: "shapes".
void add_bench_options(App& app, BenchOptions& options, const std::string& names);

}  // namespace mini::app
