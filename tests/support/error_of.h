// SPDX-License-Identifier: MIT
// Errors as texts, to look for fragments in.
#pragma once

#include <string>

#include "support/support.h"

namespace mini::test {

/// What the c10::Error that `body` throws says, without its backtrace; "" if it throws none.
template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// For child processes, where Catch2's macros reach nobody.
inline void require_error(const std::string& error, const std::string& fragment) {
  if (error.find(fragment) == std::string::npos) throw std::runtime_error("got: " + error);
}

}  // namespace mini::test
