// SPDX-License-Identifier: MIT
// The measurements of a training run: a file with one line of JSON for each step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/report.h"
#include "files/descriptor.h"
#include "files/json_file.h"

namespace mini::app {

/// Appends lines to a file of measurements. Each line has a member `step`, which increases. Throws
/// std::system_error, a std::runtime_error, with the path and the reason.
class MetricsFile {
 public:
  /// Opens or creates the file. Removes everything after the line of `step`: the lines of later
  /// steps, and an incomplete line of a killed process. Throws if a complete line before is
  /// invalid, and leaves the file unchanged then.
  MetricsFile(const std::filesystem::path& path, int64_t step);

  void append(const Json& line);

  /// Flushes all lines to the disk.
  void flush();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  detail::Descriptor descriptor_;
};

/// One line of the file.
struct StepMetrics {
  int64_t step;
  int64_t tokens;  // number of training tokens since the first step
  double train_loss;
  std::optional<double> val_loss;  // set if the run was evaluated at this step; NaN for null
  double learning_rate;
  double gradient_norm;
  double tokens_per_s;
  double seconds;  // since the first step
};

struct Metrics {
  std::vector<StepMetrics> steps;
  /// The file ends in an incomplete line, which `steps` omits. A process is writing that line, or
  /// was killed while it did.
  bool torn;
};

/// Reads the file of a run. Throws std::runtime_error, with the path and the number of the line, if
/// a line is invalid or if no line is complete.
Metrics read_metrics(const std::filesystem::path& path);

}  // namespace mini::app
