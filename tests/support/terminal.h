// SPDX-License-Identifier: MIT
// Runs code in a pseudo-terminal, and removes colour codes from text.
#pragma once

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <regex>
#include <stdexcept>
#include <string>

namespace mini::test {

/// Runs `body` in a child process whose standard output is a terminal of `columns` columns.
/// Returns what the child wrote.
template <typename Body>
std::string written_to_terminal(unsigned short columns, Body body) {
  std::cout.flush();
  const winsize size{.ws_row = 50, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) throw std::runtime_error("forkpty failed");
  if (child == 0) {
    body();
    std::cout.flush();
    ::_exit(0);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  std::erase(text, '\r');  // a terminal's lines end in \r\n
  return text;
}

/// Returns the text without its colour codes.
inline std::string without_colors(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

}  // namespace mini::test
