// SPDX-License-Identifier: MIT
// What a training run measures, a line of JSON for each step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/report.h"
#include "files/json_file.h"

namespace mini::app {

/// A file of lines with a member `step` that grows. Throws std::runtime_error with the path and the
/// reason.
class MetricsFile {
 public:
  /// Opens the file, or makes it, and cuts off what stands in it after the line of `step`: lines of
  /// later steps, and half a line that a killed process has left.
  MetricsFile(const std::filesystem::path& path, int64_t step);
  ~MetricsFile();

  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void append(const Json& line);

  /// Brings all lines to the disk.
  void flush();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  int descriptor_;
};

/// A line of the file.
struct StepMetrics {
  int64_t step;
  int64_t tokens;  // trained on so far
  double train_loss;
  std::optional<double> val_loss;  // where the run was evaluated; NaN for null
  double learning_rate;
  double gradient_norm;
  double tokens_per_s;
  double seconds;  // so far
};

struct Metrics {
  std::vector<StepMetrics> steps;
  /// The file ends in half a line, which is left out: somebody is writing it, or was killed.
  bool torn;
};

/// Reads what a run has written so far. Throws std::runtime_error, with the path and the number of
/// the line, if a line is not what `train_gpt` writes, or if there is no whole one.
Metrics read_metrics(const std::filesystem::path& path);

}  // namespace mini::app
