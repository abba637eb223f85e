// SPDX-License-Identifier: MIT
// Files with the expected output of a test.
#pragma once

#include <cstdlib>
#include <string>

#include "support/files.h"

namespace mini::test {

/// Returns the content of tests/fixtures/`name`. If MINI_WRITE_FIXTURES is set, writes `actual` to
/// the file first; review the file before you commit it.
inline std::string golden_file(const std::string& name, const std::string& actual) {
  const std::string path = MINI_FIXTURES "/" + name;
  if (std::getenv("MINI_WRITE_FIXTURES") != nullptr) {
    write_file(path, actual);
  }
  return read_file(path);
}

}  // namespace mini::test
