// SPDX-License-Identifier: MIT
// What an app has to say, in each form it can be asked for, and the one writer of them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mini {

using Json = nlohmann::ordered_json;

/// Rows of cells under a header, for CSV. A cell is a number, a string, true, false or null
/// (empty).
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<Json>> rows;
};

struct Report {
  std::string text;
  Json json;
  Table table;
};

enum class Format { kText, kJson, kCsv };

/// Writes the report in one form to a file, or to standard output where `path` is unset.
/// A file appears whole or not at all. Throws std::system_error if it cannot be written.
void write_report(const Report& report, Format format,
                  const std::optional<std::filesystem::path>& path);

/// A tensor of any number of dimensions as nested lists of numbers.
Json to_json(const at::Tensor& tensor);

/// Appends one line for each element of each named tensor in a JSON object: name, row, column,
/// value. A vector's elements have no row, a number has neither; strings and booleans are values
/// too.
Table long_table(const Json& object);

}  // namespace mini
