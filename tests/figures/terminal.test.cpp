// SPDX-License-Identifier: MIT
#include "mini/terminal.h"

#include <cstdio>
#include <cstdlib>

#include "support/files.h"
#include "support/support.h"
#include "support/terminal.h"

using namespace mini;
using namespace mini::test;

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

void set_only(const Variables& variables) {
  for (const char* name : {"COLORTERM", "TERM", "NO_COLOR", "COLUMNS"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

void print_standard_output(const Variables& variables) {
  set_only(variables);
  const Terminal found = standard_output();
  const char* names[] = {"none", "256", "24-bit"};
  std::printf("%d columns, %s\n", static_cast<int>(found.width),
              names[static_cast<int>(found.colors)]);
  std::fflush(stdout);
}

std::string in_terminal(unsigned short columns, const Variables& variables) {
  return written_to_terminal(columns, [&] { print_standard_output(variables); });
}

}  // namespace

TEST_CASE("a terminal has its own width and the colours of COLORTERM or TERM", "[terminal]") {
  CHECK(in_terminal(100, {}) == "100 columns, none\n");
  CHECK(in_terminal(37, {{"TERM", "xterm-256color"}, {"COLUMNS", "99"}}) == "37 columns, 256\n");
  CHECK(in_terminal(80, {{"TERM", "xterm"}}) == "80 columns, none\n");
  CHECK(in_terminal(80, {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}}) ==
        "80 columns, 24-bit\n");
  CHECK(in_terminal(80, {{"COLORTERM", "24bit"}}) == "80 columns, 24-bit\n");
  CHECK(in_terminal(80, {{"COLORTERM", "yes"}}) == "80 columns, none\n");
}

TEST_CASE("a dumb terminal has no colours", "[terminal]") {
  CHECK(in_terminal(80, {{"TERM", "dumb"}, {"COLORTERM", "truecolor"}}) == "80 columns, none\n");
  CHECK(in_terminal(80, {{"TERM", "dumb"}, {"COLORTERM", "24bit"}}) == "80 columns, none\n");
}

TEST_CASE("NO_COLOR turns colours off unless it is empty", "[terminal]") {
  CHECK(in_terminal(80, {{"COLORTERM", "truecolor"}, {"NO_COLOR", "0"}}) == "80 columns, none\n");
  CHECK(in_terminal(80, {{"COLORTERM", "truecolor"}, {"NO_COLOR", ""}}) == "80 columns, 24-bit\n");
}

TEST_CASE("if the width is unknown, it is COLUMNS, or 80", "[terminal]") {
  CHECK(in_terminal(0, {}) == "80 columns, none\n");
  CHECK(in_terminal(0, {{"COLUMNS", "120"}}) == "120 columns, none\n");
  for (const std::string wrong : {"", "x", "12x", "-5", "0", "99999999999999999999"}) {
    INFO(wrong);
    CHECK(in_terminal(0, {{"COLUMNS", wrong}}) == "80 columns, none\n");
  }
}

TEST_CASE("standard output to a file has no colours", "[terminal]") {
  const TemporaryFolder folder;
  in_child([&] {
    if (std::freopen((folder / "out").c_str(), "w", stdout) == nullptr) std::abort();
    print_standard_output({{"COLORTERM", "truecolor"}, {"COLUMNS", "50"}});
  });
  CHECK(read_file(folder / "out") == "50 columns, none\n");
}
