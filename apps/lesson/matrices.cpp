// SPDX-License-Identifier: MIT
#include "lesson/matrices.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "files/json_file.h"

namespace mini::app {
namespace {

using detail::Json;

// Flattens nested lists, row by row, and keeps their shape.
class Reader {
 public:
  Reader(std::string name, const Json& list) : name_(std::move(name)) {
    int64_t depth = 0;
    for (const Json* level = &list; level->is_array(); level = &level->front()) {
      ++depth;
      if (level->empty()) {
        fail(fmt::format("expected lists of at least one element, got an empty list at depth {}",
                         depth));
      }
      shape_.push_back(static_cast<int64_t>(level->size()));
    }
    if (depth < 2 || depth > 3) {
      fail(fmt::format("expected a matrix or a list of matrices, got {}",
                       depth == 0 ? list.type_name() : fmt::format("lists of depth {}", depth)));
    }
    read(list, 0, name_);
  }

  at::Tensor tensor() const {
    const at::Tensor values = at::tensor(values_, at::kDouble).reshape(shape_);
    return truth_values_ ? values.to(at::kBool) : values;
  }

 private:
  void read(const Json& value, size_t depth, const std::string& place) {
    if (depth == shape_.size()) {
      read_number(value, place);
      return;
    }
    if (!value.is_array() || static_cast<int64_t>(value.size()) != shape_[depth]) {
      fail(fmt::format(
          "expected {} to be a list of length {} like the first, got {}", place, shape_[depth],
          value.is_array() ? fmt::format("length {}", value.size()) : value.type_name()));
    }
    for (size_t i = 0; i < value.size(); ++i) {
      read(value[i], depth + 1, fmt::format("{}[{}]", place, i));
    }
  }

  void read_number(const Json& value, const std::string& place) {
    const std::optional<double> number = number_of(value);
    if (values_.empty()) {
      truth_values_ = name_ == "mask" && value.is_boolean();
    }
    if (truth_values_ ? !value.is_boolean() : !number) {
      fail(fmt::format("expected {} to be {}, got {}", place,
                       truth_values_     ? "true or false like the first entry"
                       : name_ == "mask" ? "a number, NaN, Infinity or -Infinity"
                                         : "a number",
                       value.dump()));
    }
    values_.push_back(truth_values_ ? static_cast<double>(value.get<bool>()) : *number);
  }

  // A mask may contain numbers that JSON lacks. The programs write them as strings.
  std::optional<double> number_of(const Json& value) const {
    if (value.is_number()) return value.get<double>();
    if (name_ != "mask") return std::nullopt;
    if (value == "nan") return NAN;
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    return std::nullopt;
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw std::runtime_error(fmt::format("{}: {}", name_, problem));
  }

  std::string name_;
  std::vector<int64_t> shape_;
  std::vector<double> values_;
  bool truth_values_ = false;
};

// Python's json module writes NaN, Infinity and -Infinity, which JSON lacks. They become the
// strings "nan", "inf" and "-inf".
std::string without_python_numbers(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kNumbers[] = {
      {"NaN", "\"nan\""}, {"Infinity", "\"inf\""}, {"-Infinity", "\"-inf\""}};
  std::string result;
  bool in_string = false;
  while (!text.empty()) {
    const auto* number = std::ranges::find_if(
        kNumbers, [&](const auto& pair) { return !in_string && text.starts_with(pair.first); });
    if (number != std::end(kNumbers)) {
      result += number->second;
      text.remove_prefix(number->first.size());
      continue;
    }
    const bool escape = in_string && text.front() == '\\' && text.size() > 1;
    if (text.front() == '"') in_string = !in_string;
    result += text.substr(0, escape ? 2 : 1);
    text.remove_prefix(escape ? 2 : 1);
  }
  return result;
}

Json parse_file(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    throw std::system_error(EISDIR, std::generic_category(), "expected a JSON file");
  }
  errno = 0;
  std::ifstream stream(path);
  if (!stream) {
    throw std::system_error(errno, std::generic_category(), "cannot read the file");
  }
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    throw std::runtime_error(fmt::format("expected text, got a NUL byte at offset {}", nul));
  }
  return detail::parse_json(without_python_numbers(text));
}

AttentionMatrices from_json(const Json& object) {
  if (!object.is_object()) {
    throw std::runtime_error(
        fmt::format("expected an object with q, k and v, got {}", object.type_name()));
  }
  AttentionMatrices matrices;
  for (const auto& [name, value] : object.items()) {
    if (name == "q") {
      matrices.q = Reader(name, value).tensor();
    } else if (name == "k") {
      matrices.k = Reader(name, value).tensor();
    } else if (name == "v") {
      matrices.v = Reader(name, value).tensor();
    } else if (name == "mask") {
      matrices.mask = Reader(name, value).tensor();
    } else {
      throw std::runtime_error(
          fmt::format("unknown key '{}': expected q, k, v and optionally mask", name));
    }
  }
  for (const auto& [name, tensor] :
       {std::pair("q", &matrices.q), {"k", &matrices.k}, {"v", &matrices.v}}) {
    if (!tensor->defined()) {
      throw std::runtime_error(fmt::format("missing key '{}'", name));
    }
  }
  return matrices;
}

}  // namespace

AttentionMatrices read_attention_matrices(const std::filesystem::path& path) {
  try {
    return from_json(parse_file(path));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("'{}': {}", path.string(), error.what()));
  }
}

}  // namespace mini::app
