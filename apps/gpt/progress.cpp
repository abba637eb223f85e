// SPDX-License-Identifier: MIT
#include "gpt/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>

namespace mini::app {
namespace {

// Ignores errors: progress is not worth ending the job.
void write(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { erase(); }

void Progress::show(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now < next_) {
    return;
  }
  next_ = now + std::chrono::milliseconds(100);
  // Spaces overwrite the rest of a longer line, because not every terminal has escape sequences.
  write(fmt::format("\r{:<{}}", line, shown_));
  shown_ = line.size();
}

void Progress::note(const std::string& line) {
  erase();
  write(line + '\n');
}

void Progress::erase() {
  if (shown_ > 0) {
    write(fmt::format("\r{:{}}\r", "", shown_));
  }
  shown_ = 0;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace mini::app
