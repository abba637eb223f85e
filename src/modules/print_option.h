// SPDX-License-Identifier: MIT
// Prints the options of a module as in its constructor call.
#pragma once

#include <optional>
#include <ostream>

namespace mini::detail {

/// Prints ", name=value" if the option differs from its default.
template <typename T>
void print_option(std::ostream& stream, const char* name, const T& value, const T& standard) {
  if (value != standard) stream << ", " << name << '=' << value;
}

inline void print_option(std::ostream& stream, const char* name, bool value) {
  if (value) stream << ", " << name << "=true";
}

template <typename T>
void print_option(std::ostream& stream, const char* name, const std::optional<T>& value) {
  if (value) stream << ", " << name << '=' << *value;
}

}  // namespace mini::detail
