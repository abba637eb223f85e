// SPDX-License-Identifier: MIT
// Texts by name, such as the metadata of a safetensors file, as error messages print them.
#pragma once

#include <map>
#include <string>

namespace mini::detail {

/// The value of `name`, or "none" if `values` has no such name.
inline std::string value_or_none(const std::map<std::string, std::string>& values,
                                 const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "none" : found->second;
}

}  // namespace mini::detail
