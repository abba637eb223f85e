// SPDX-License-Identifier: MIT
// libFuzzer's target for metrics.jsonl. The reader must either refuse the bytes or return steps in
// increasing order. MetricsFile, which --resume opens, must either refuse the file and leave it
// unchanged, or keep a prefix of whole lines.
#include "gpt/metrics_file.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "memory_file.h"

using mini::app::Metrics;
using mini::app::MetricsFile;
using mini::fuzz::MemoryFile;
using mini::fuzz::require;

namespace {

void check_read(const MemoryFile& file) {
  Metrics metrics;
  try {
    metrics = mini::app::read_metrics(file.path());
  } catch (const std::runtime_error&) {  // every other exception is a finding
    return;
  }
  require(!metrics.steps.empty(), "there is a step");
  for (std::size_t i = 1; i < metrics.steps.size(); ++i) {
    require(metrics.steps[i - 1].step < metrics.steps[i].step, "steps increase");
  }
}

void check_resume(const MemoryFile& file, std::string_view before) {
  constexpr std::int64_t kStep = 3;
  bool refused = false;
  try {
    const MetricsFile opened(file.path(), kStep);
  } catch (const std::runtime_error&) {
    refused = true;
  }
  const std::string after = file.contents();
  require(!refused || after == before, "a refused file is unchanged");
  require(before.starts_with(after), "only the end of the file is removed");
  require(refused || after.empty() || after.back() == '\n', "whole lines remain");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFile file;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  file.replace(bytes);
  check_read(file);
  check_resume(file, bytes);
  return 0;
}
