// SPDX-License-Identifier: MIT
// Options of a module, as its constructor call shows them.
#pragma once

#include <optional>
#include <ostream>

namespace mini::detail {

/// ", name=value", or nothing where the option has its default.
template <typename T>
void print_option(std::ostream& stream, const char* name, const T& value, const T& normal) {
  if (value != normal) {
    stream << ", " << name << '=' << value;
  }
}

inline void print_option(std::ostream& stream, const char* name, bool value) {
  if (value) {
    stream << ", " << name << "=true";
  }
}

template <typename T>
void print_option(std::ostream& stream, const char* name, const std::optional<T>& value) {
  if (value) {
    stream << ", " << name << '=' << *value;
  }
}

}  // namespace mini::detail
