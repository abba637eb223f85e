// SPDX-License-Identifier: MIT
#include "files/json_file.h"

#include "files/atomic_file.h"
#include "files/mapped_file.h"
#include "strict_math.h"

namespace mini::detail {
namespace {

/// The message of `error` without its start "[json.exception.parse_error.101] ".
std::string reason(const Json::exception& error) {
  const std::string message = error.what();
  return message.substr(message.find(']') + 2);
}

}  // namespace

Json parse_json(std::string_view text) {
  // The parser treats a NUL as the end of its input and would ignore the rest.
  if (text.find('\0') != std::string_view::npos) {
    throw std::runtime_error("it contains a NUL byte");
  }
  const auto check_depth = [](int depth, Json::parse_event_t event, const Json&) {
    constexpr int kMaxDepth = 100;  // the depth of the start of the first list is 0
    const bool starts =
        event == Json::parse_event_t::array_start || event == Json::parse_event_t::object_start;
    if (starts && depth >= kMaxDepth)
      throw std::runtime_error("it is nested deeper than 100 levels");
    return true;
  };
  try {
    return Json::parse(text, check_depth);
  } catch (const Json::exception& error) {
    throw std::runtime_error(reason(error));
  }
}

Json read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  try {
    return parse_json(file.bytes());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("'" + path.string() + "' is not JSON: " + error.what());
  }
}

void write_json(const std::filesystem::path& path, const Json& json) {
  std::string text;
  try {
    text = json.dump(1);
  } catch (const Json::exception& error) {  // a string is not UTF-8
    throw std::runtime_error("cannot write '" + path.string() + "': " + reason(error));
  }
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace mini::detail
