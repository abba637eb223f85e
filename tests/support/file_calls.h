// SPDX-License-Identifier: MIT
// The calls of this process that make files durable, in their order. A power cut loses what a file
// system has not flushed, and no other test can simulate one.
#pragma once

#include <string>
#include <vector>

namespace mini::test {

/// Records the calls of fsync(), rename() and renameat2() until the end of the scope:
/// "fsync NAME", "rename NAME NAME", "exchange NAME NAME". A NAME is the last part of a path. The
/// random names of temporary files read "temporary".
class FileCalls {
 public:
  FileCalls();
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

}  // namespace mini::test
