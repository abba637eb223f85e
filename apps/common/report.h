// SPDX-License-Identifier: MIT
// What an app has to say, in each form it can be asked for, and the one writer of them all.
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
  /// Set where the result is complete and yet a failure: it is shown, but replaces no file, and the
  /// app ends with status 1.
  std::string failure = {};
  /// Drawn only when asked for; empty where the app has no picture.
  std::function<std::string()> svg = {};
  std::function<std::string()> html = {};
};

enum class Format { kText, kJson, kCsv, kSvg, kHtml };

/// Writes the report in one form to a file, or to standard output where `path` is unset.
/// A file appears whole or not at all. Throws std::system_error if it cannot be written.
void write_report(const Report& report, Format format,
                  const std::optional<std::filesystem::path>& path);

/// Writes and flushes. Throws std::system_error if standard output does not take all of it.
void write_to_stdout(std::string_view content);

/// A tensor of any number of dimensions as nested lists of numbers or truth values. JSON has no
/// infinity and no NaN: these become the strings "inf", "-inf" and "nan".
Json tensor_json(const at::Tensor& tensor);

/// The elements of a tensor, row by row.
std::vector<double> numbers(const at::Tensor& tensor);

/// "1 key", "2 keys".
std::string counted(int64_t count, const std::string& thing);

/// Every number, string and truth value in a JSON object on a line of its own: its name (dotted
/// where objects nest), its place in a list, matrix or batch of matrices, its value.
Table long_table(const Json& object);

}  // namespace mini::app
