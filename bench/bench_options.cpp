// SPDX-License-Identifier: MIT
#include "bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mini::app {

void add_bench_options(App& app, BenchOptions& options, const std::string& names) {
  app.add_option("--filter", options.filter,
                 fmt::format("Measure only {} that contain this text", names));
  add_list(app, "--threads", options.threads, "Numbers of threads, separated by commas",
           thread_count())
      ->default_str(fmt::format("{}", fmt::join(options.threads, ",")));
  app.add_flag("--default-malloc", options.default_malloc,
               "Keep the default settings of the allocator");
}

}  // namespace mini::app
