// SPDX-License-Identifier: MIT
// Errors of the files room, reported under the name of the public function that was called.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>

namespace mini::detail {

/// Returns `body()`. If `body` throws a std::runtime_error, throws a c10::Error whose message is
/// that of the std::runtime_error with "`function`: " before it. Other exceptions pass unchanged.
template <typename Body>
auto prefix_errors(const char* function, Body body) {
  try {
    return body();
  } catch (const std::runtime_error& error) {
    C10_THROW_ERROR(Error, c10::str(function, ": ", error.what()));
  }
}

}  // namespace mini::detail
