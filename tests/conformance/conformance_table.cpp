// SPDX-License-Identifier: MIT
// Prints the table of docs/conformance.md: which points of the contract the paths of this library
// and LibTorch's attention meet. With --check FILE, compares this library's columns with the file.
#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "support/conformance_paths.h"

namespace {

using mini::Conformance;
using mini::ConformanceResult;

struct Column {
  const char* name;
  mini::AttentionFunction attention;
};

constexpr size_t kOurs = 4;

std::vector<Column> columns() {
  return {{"fused", mini::test::by_fused_path},
          {"composite", mini::test::by_composite_path},
          {"operator", mini::test::by_operator},
          {"`Head`", mini::test::by_head},
          {"LibTorch's function", mini::test::by_libtorch},
          {"`nn::MultiheadAttention`", mini::test::by_libtorch_module}};
}

std::string cell(const ConformanceResult& result) {
  switch (result.status) {
    case Conformance::kHolds:
      return "yes";
    case Conformance::kUnsupported:
      return "–";
    case Conformance::kFails:
      return "**no**";
  }
  return {};
}

// A line of a Markdown table.
std::string line(const std::vector<std::string>& cells, size_t count) {
  std::string text = "|";
  for (size_t i = 0; i < count; ++i) text += " " + cells[i] + " |";
  return text;
}

// The rows of the table: point, rule, then one cell for each column.
std::vector<std::vector<std::string>> rows(std::string& notes) {
  std::vector<std::vector<std::string>> table = {{"point", "the contract"}, {"---", "---"}};
  for (const Column& column : columns()) {
    table[0].push_back(column.name);
    table[1].push_back("---");
    const std::vector<ConformanceResult> results = mini::check_attention(column.attention);
    for (size_t i = 0; i < results.size(); ++i) {
      if (table.size() <= i + 2) table.push_back({results[i].point, results[i].rule});
      table[i + 2].push_back(cell(results[i]));
      if (results[i].status == Conformance::kFails) {
        notes += std::string("- ") + column.name + ", " + results[i].point + ": " +
                 results[i].detail + "\n";
      }
    }
  }
  return table;
}

int check(const std::string& path, const std::vector<std::vector<std::string>>& table) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  for (const auto& row : table) {
    if (row[0] == "---") continue;
    const std::string expected = "\n" + line(row, 2 + kOurs);
    if (content.str().find(expected) == std::string::npos) {
      std::cerr << path << " lacks this row; conformance_table prints the table:\n"
                << line(row, row.size()) << '\n';
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string notes;
  const auto table = rows(notes);
  if (argc == 3 && std::string(argv[1]) == "--check") return check(argv[2], table);
  for (const auto& row : table) std::cout << line(row, row.size()) << '\n';
  std::cout << '\n' << notes;
}
