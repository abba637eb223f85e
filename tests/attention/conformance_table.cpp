// SPDX-License-Identifier: MIT
// conformance_table               prints the table of docs/conformance.md
// conformance_table --check PAGE  fails if a column of this library differs from the page
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "support/attention_functions.h"

using namespace mini;
using namespace mini::test;

namespace {

struct Column {
  std::string name;
  std::vector<NamedAttention> functions;  // a cell shows the first failure of them
};

// The first three of our functions have a column each; the modules share one.
std::vector<Column> all_columns() {
  const auto ours = our_attention_functions();
  std::vector<Column> columns;
  for (size_t i = 0; i < 3; ++i) columns.push_back({ours[i].name, {ours[i]}});
  columns.push_back({"modules", {ours[3], ours[4]}});
  for (const NamedAttention& theirs : libtorch_attention_functions()) {
    columns.push_back({"`" + theirs.name + "`", {theirs}});
  }
  return columns;
}

constexpr size_t kOurColumns = 4;

// "yes", or what the function does instead.
std::string cell(const std::vector<std::vector<ConformancePoint>>& results,
                 const std::string& rule) {
  std::string text = "-";
  for (const auto& points : results) {
    for (const ConformancePoint& point : points) {
      if (point.rule != rule) continue;
      if (!point.passed) return point.actual;
      text = "yes";
    }
  }
  return text;
}

// The table, row by row. Each row has `columns` cells after the rule.
std::vector<std::string> table(size_t columns) {
  std::vector<Column> shown = all_columns();
  shown.resize(columns);
  std::string names = "| point |", rule_line = "|---|";
  std::vector<std::vector<std::vector<ConformancePoint>>> results;
  for (const Column& column : shown) {
    names += " " + column.name + " |";
    rule_line += "---|";
    auto& all = results.emplace_back();
    for (const NamedAttention& attention : column.functions) {
      all.push_back(check_attention(attention.function, {.features = attention.features}));
    }
  }
  std::vector<std::string> rows = {names, rule_line};
  for (const ConformancePoint& point : results[0][0]) {
    std::string row = "| " + point.rule + " |";
    for (const auto& column : results) row += " " + cell(column, point.rule) + " |";
    rows.push_back(row);
  }
  return rows;
}

int check(const char* page) {
  std::ifstream file(page);
  std::vector<std::string> in_page;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("|")) in_page.push_back(line);
  }
  const std::vector<std::string> expected = table(kOurColumns);
  for (size_t i = 0; i < std::max(in_page.size(), expected.size()); ++i) {
    const std::string wanted = i < expected.size() ? expected[i] : "no more rows";
    const std::string found = i < in_page.size() ? in_page[i] : "no more rows";
    if (!found.starts_with(wanted)) {
      std::cerr << page << ": expected a row that begins\n  " << wanted << "\ngot\n  " << found
                << "\nprint the table with build/release/bin/conformance_table\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--check") return check(argv[2]);
  if (argc != 1) {
    std::cerr << "usage: conformance_table [--check PAGE]\n";
    return 2;
  }
  for (const std::string& row : table(all_columns().size())) std::cout << row << '\n';
}
