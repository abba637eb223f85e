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

Json read_json(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string name = "'" + path.string() + "'";
  // The parser treats a NUL as the end of its input and would ignore the rest.
  if (file.bytes().find('\0') != std::string_view::npos) {
    throw std::runtime_error(name + " is not JSON: it contains a NUL byte");
  }
  try {
    return Json::parse(file.bytes());
  } catch (const Json::exception& error) {
    throw std::runtime_error(name + " is not JSON: " + reason(error));
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
