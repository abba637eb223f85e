// SPDX-License-Identifier: MIT
// What the error messages of this room share.
#pragma once

#include <c10/util/Exception.h>

#include <map>
#include <stdexcept>
#include <string>

namespace mini::detail {

/// Returns `body()`. Rethrows a std::runtime_error as a c10::Error, with "`function`: " before the
/// message. Other exceptions pass unchanged.
template <typename Body>
auto prefix_errors(const char* function, Body body) {
  try {
    return body();
  } catch (const std::runtime_error& error) {
    C10_THROW_ERROR(Error, c10::str(function, ": ", error.what()));
  }
}

/// The value of `name`, or "none" if `values` does not contain it.
inline std::string value_or_none(const std::map<std::string, std::string>& values,
                                 const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "none" : found->second;
}

}  // namespace mini::detail
