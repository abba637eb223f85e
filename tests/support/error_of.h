// SPDX-License-Identifier: MIT
// The messages of errors, for assertions on fragments.
#pragma once

#include <string>

#include "support/support.h"

namespace mini::test {

/// Returns the message of the c10::Error that `body` throws, without its backtrace, or "" if `body`
/// does not throw one.
template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// Throws if `error` does not contain `fragment`. For child processes, in which Catch2's assertions
/// are not reported.
inline void require_error(const std::string& error, const std::string& fragment) {
  if (error.find(fragment) == std::string::npos) throw std::runtime_error("got: " + error);
}

}  // namespace mini::test
