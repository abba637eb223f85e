// SPDX-License-Identifier: MIT
// Telling on standard error how far a long job is.
#pragma once

#include <chrono>
#include <string>

namespace mini::app {

/// One line that is written over and over on a terminal, and lines that stay, there and elsewhere.
class Progress {
 public:
  Progress();
  /// Leaves the terminal at the beginning of a line.
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `line` in place of the one before, on a terminal only, and not more often than it can be
  /// read.
  void show(const std::string& line);

  /// Writes a line that stays.
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
