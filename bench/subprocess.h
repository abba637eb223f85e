// SPDX-License-Identifier: MIT
// Another program, to talk to line by line.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace mini::app {

/// Runs a program whose standard input and output are ours; its errors go where ours go.
class Subprocess {
 public:
  /// Throws std::system_error if it cannot be started.
  explicit Subprocess(const std::vector<std::string>& command);
  /// Closes its input and waits for its end.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  /// Writes a line and reads one.  Throws std::runtime_error if the program has ended.
  std::string ask(const std::string& line);

 private:
  std::string name_;
  int pid_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
};

}  // namespace mini::app
