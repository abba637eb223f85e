// SPDX-License-Identifier: MIT
// Output held against a file, byte for byte.
#pragma once

#include <cstdlib>
#include <string>

#include "support/files.h"

namespace mini::test {

/// tests/fixtures/`name` as it is; with MINI_WRITE_FIXTURES set, `actual` is written there first,
/// for a person to look at before it is committed.
inline std::string golden_file(const std::string& name, const std::string& actual) {
  const std::string path = MINI_FIXTURES "/" + name;
  if (std::getenv("MINI_WRITE_FIXTURES") != nullptr) {
    write_file(path, actual);
  }
  return read_file(path);
}

}  // namespace mini::test
