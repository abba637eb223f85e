// SPDX-License-Identifier: MIT
#include "mini/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace mini {
namespace {

constexpr int64_t kUsualWidth = 80;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Colors colors() {
  if (::isatty(STDOUT_FILENO) == 0 || !variable("NO_COLOR").empty()) return Colors::kNone;
  if (variable("TERM") == "dumb") return Colors::kNone;  // it has no colours, whatever COLORTERM is
  const std::string_view color_term = variable("COLORTERM");
  if (color_term == "truecolor" || color_term == "24bit") return Colors::k24Bit;
  const bool many = variable("TERM").find("256color") != std::string_view::npos;
  return many ? Colors::k256 : Colors::kNone;
}

int64_t width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string_view columns = variable("COLUMNS");
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(columns.data(), columns.data() + columns.size(), number);
  const bool whole = error == std::errc() && end == columns.data() + columns.size();
  return whole && number > 0 ? number : kUsualWidth;
}

}  // namespace

Terminal standard_output() { return {.width = width(), .colors = colors()}; }

}  // namespace mini
