// SPDX-License-Identifier: MIT
// The progress of a long job, on standard error.
#pragma once

#include <chrono>
#include <string>

namespace mini::app {

/// Shows one line that a terminal overwrites again and again, and permanent lines above it.
class Progress {
 public:
  Progress();
  /// Erases the line.
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Replaces the line on a terminal, at most ten times per second. Has no effect if standard error
  /// is not a terminal.
  void show(const std::string& line);

  /// Writes a permanent line.
  void note(const std::string& line);

 private:
  void erase();

  bool terminal_;
  size_t shown_ = 0;  // length of the line on the terminal
  std::chrono::steady_clock::time_point next_;
};

/// "1:05" or "2:01:05".
std::string duration_text(double seconds);

}  // namespace mini::app
