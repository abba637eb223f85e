// SPDX-License-Identifier: MIT
// Runs another program and exchanges lines with it.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace mini::app {

/// A program whose standard input and output are connected to this object. The program shares our
/// standard error.
class Subprocess {
 public:
  /// Starts the program. Throws std::system_error on failure.
  explicit Subprocess(const std::vector<std::string>& command);
  /// Closes the program's standard input and waits until the program ends.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  /// Writes a line and returns the line that the program answers. Throws std::runtime_error if the
  /// program has ended.
  std::string ask(const std::string& line);

 private:
  std::string name_;
  int pid_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
};

}  // namespace mini::app
