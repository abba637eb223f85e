// SPDX-License-Identifier: MIT
// Reads JSON files, with error messages that name the path and the member, and replaces them
// atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace mini::detail {

using Json = nlohmann::ordered_json;

/// Returns the value of a JSON text. Throws std::runtime_error with the reason if the text is not
/// JSON, contains a NUL byte, or nests lists and objects deeper than 100 levels: functions that
/// copy or print a value call themselves once per level.
Json parse_json(std::string_view text);

/// Returns the contents of the file at `path`. Throws std::runtime_error, with the path, if the
/// file cannot be read or is not JSON.
Json read_json(const std::filesystem::path& path);

/// Reads the file at `path` and returns `read(json)`. If `read` throws, throws std::runtime_error
/// whose message is the path followed by the message of that exception.
template <typename Read>
auto read_json(const std::filesystem::path& path, Read read) {
  const Json json = read_json(path);
  try {
    return read(json);
  } catch (const std::exception& error) {
    throw std::runtime_error("'" + path.string() + "': " + error.what());
  }
}

/// Writes `json` to the file at `path`, which is replaced atomically. The file ends without a
/// newline, so an object that is cut off anywhere is not valid JSON.
/// Throws std::runtime_error, with the path, if the file cannot be written.
void write_json(const std::filesystem::path& path, const Json& json);

/// Returns the member `name` of `object` as a T: bool, an integer type, a floating-point type,
/// std::string, or Json for an object or a list. Throws std::runtime_error if the member is
/// missing, has another type, or is outside the range of an integer type. The message contains the
/// name, the expected type and the value.
template <typename T>
T json_member(const Json& object, const std::string& name) {
  const auto require = [&](bool holds, const std::string& expected, const Json& value) {
    if (!holds) throw std::runtime_error(name + ": expected " + expected + ", got " + value.dump());
  };
  require(object.is_object(), "a member of an object", object);
  require(object.contains(name), "a value", nullptr);
  const Json& value = object[name];
  if constexpr (std::is_same_v<T, bool>) {
    require(value.is_boolean(), "true or false", value);
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    const bool fits =
        value.is_number_integer() &&
        (value.is_number_unsigned() || value.get<std::int64_t>() >= 0
             ? value.get<std::uint64_t>() <= std::uint64_t{Limits::max()}
             : std::is_signed_v<T> && value.get<std::int64_t>() >= std::int64_t{Limits::min()});
    require(fits, "a whole number", value);
  } else if constexpr (std::is_floating_point_v<T>) {
    require(value.is_number(), "a number", value);
  } else if constexpr (std::is_same_v<T, Json>) {
    require(value.is_structured(), "an object or a list", value);
  } else {
    require(value.is_string(), "a string", value);
  }
  return value.get<T>();
}

}  // namespace mini::detail
