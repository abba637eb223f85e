// SPDX-License-Identifier: MIT
// What a training run measures, a line of JSON for each step.
#pragma once

#include <cstdint>
#include <filesystem>

#include "json_file.h"

namespace mini {

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

}  // namespace mini
