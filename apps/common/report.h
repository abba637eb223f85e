// SPDX-License-Identifier: MIT
// The result of a program in each output format, and the function that writes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mini::app {

using Json = nlohmann::ordered_json;

/// A header and rows of cells, for CSV. A cell is a number, a string, true, false, or null for an
/// empty cell.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<Json>> rows;
};

struct Report {
  std::string text;
  Json json;
  Table table;
  /// Set if the result is complete but is a failure, such as a failed check. The report then goes
  /// to standard output only, never to a file, and the program exits with status 1.
  std::string failure = {};
  /// Called only for --format svg or html. Empty if the program has no such format.
  std::function<std::string()> svg = {};
  std::function<std::string()> html = {};
};

enum class Format { kText, kJson, kCsv, kSvg, kHtml };

/// Writes the report to the file `path`, or to standard output if `path` is unset.
/// The file is written completely or not at all. Throws std::system_error if writing fails.
void write_report(const Report& report, Format format,
                  const std::optional<std::filesystem::path>& path);

/// Writes `content` and flushes. Throws std::system_error if writing fails.
void write_to_stdout(std::string_view content);

/// A tensor of any number of dimensions as nested lists of numbers or truth values. Infinities and
/// NaN become the strings "inf", "-inf" and "nan", because JSON has no such numbers.
Json tensor_json(const at::Tensor& tensor);

/// The elements of a tensor in row-major order.
std::vector<double> numbers(const at::Tensor& tensor);

/// "1 key", "2 keys".
std::string counted(int64_t count, const std::string& thing);

/// A table with one row per number, string and truth value of a JSON object. The columns are the
/// name (with dots between the names of nested objects), the indices in a list, a matrix or a batch
/// of matrices, and the value.
Table long_table(const Json& object);

}  // namespace mini::app
