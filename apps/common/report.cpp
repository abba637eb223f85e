// SPDX-License-Identifier: MIT
#include "common/report.h"

#include <fmt/format.h>

#include <ATen/ATen.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <functional>
#include <system_error>

#include "files/atomic_file.h"

namespace mini::app {
namespace {

std::string csv_cell(const Json& cell) {
  // JSON output writes a number that is not finite as null.
  if (cell.is_null() || (cell.is_number_float() && !std::isfinite(cell.get<double>()))) {
    return "";
  }
  if (!cell.is_string()) {
    return cell.dump();
  }
  const auto& text = cell.get_ref<const std::string&>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";  // RFC 4180: quotes are doubled
  for (const char c : text) {
    quoted += c == '"' ? std::string(2, '"') : std::string(1, c);
  }
  return quoted + '"';
}

template <typename Cells>
std::string csv_line(const Cells& cells) {
  std::string line;
  for (const auto& cell : cells) {
    line.append(line.empty() ? "" : ",").append(csv_cell(cell));
  }
  return line.append("\n");
}

std::string to_csv(const Table& table) {
  std::string csv = csv_line(table.header);
  for (const auto& row : table.rows) {
    csv += csv_line(row);
  }
  return csv;
}

std::string render(const Report& report, Format format) {
  switch (format) {
    case Format::kText:
      return report.text;
    case Format::kJson:
      return report.json.dump(1) + '\n';
    case Format::kCsv:
      return to_csv(report.table);
    case Format::kSvg:
      return report.svg();
    case Format::kHtml:
      return report.html();
  }
  return {};
}

constexpr size_t kMaxIndices = 3;  // batch, row, column

void append_values(Table& table, const std::string& name, const Json& value,
                   const std::vector<size_t>& indices) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      append_values(table, name.empty() ? key : name + '.' + key, member, indices);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      std::vector<size_t> deeper = indices;
      deeper.push_back(i);
      append_values(table, name, value[i], deeper);
    }
  } else {
    std::vector<Json> row = {name};
    // A matrix has no batch index, a list has only a row index, a single value has no index.
    const size_t before = indices.size() == 1 ? 1 : kMaxIndices - indices.size();
    row.resize(1 + before, nullptr);
    row.insert(row.end(), indices.begin(), indices.end());
    row.resize(1 + kMaxIndices, nullptr);
    row.push_back(value);
    table.rows.push_back(std::move(row));
  }
}

}  // namespace

void write_to_stdout(std::string_view content) {
  errno = 0;
  const bool written = std::fwrite(content.data(), 1, content.size(), stdout) == content.size();
  if (std::fflush(stdout) != 0 || !written) {
    throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
  }
}

void write_report(const Report& report, Format format,
                  const std::optional<std::filesystem::path>& path) {
  const std::string content = render(report, format);
  if (!path) {
    write_to_stdout(content);
    return;
  }
  detail::AtomicFile file(*path);
  file.write(content);
  file.commit();
}

Json tensor_json(const at::Tensor& tensor) {
  const bool truth_values = tensor.scalar_type() == at::kBool;
  const std::vector<double> values = numbers(tensor);
  const double* next = values.data();
  const std::function<Json(int64_t)> nested = [&](int64_t dimension) {
    if (dimension == tensor.dim()) {
      const double value = *next++;
      return truth_values           ? Json(value != 0.0)
             : std::isfinite(value) ? Json(value)
                                    : Json(std::isnan(value) ? "nan"
                                           : value > 0       ? "inf"
                                                             : "-inf");
    }
    Json list = Json::array();
    for (int64_t i = 0; i < tensor.size(dimension); ++i) {
      list.push_back(nested(dimension + 1));
    }
    return list;
  };
  return nested(0);
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {doubles.const_data_ptr<double>(), doubles.const_data_ptr<double>() + doubles.numel()};
}

std::string counted(int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

Table long_table(const Json& object) {
  Table table{{"name", "batch", "row", "column", "value"}, {}};
  append_values(table, "", object, {});
  return table;
}

}  // namespace mini::app
