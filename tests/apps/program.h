// SPDX-License-Identifier: MIT
// Running a program through the shell, as a user does.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "support/files.h"
#include "support/terminal.h"

namespace mini::test {

struct Run {
  int status;       // the exit status, or -1 if a signal ended the program
  std::string out;  // standard output
  std::string err;  // standard error
};

/// `command_line` is a program's name and its arguments, read by the shell. It may redirect.
inline Run run(const std::string& command_line) {
  const TemporaryFolder folder;
  const std::string out = folder / "out", err = folder / "err";
  const int status =
      std::system(("exec >'" + out + "' 2>'" + err + "'; '" MINI_APPS "'/" + command_line).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

/// The output of the program on a terminal of 80 columns. `environment` holds shell commands that
/// run before the program.
inline std::string run_in_terminal(const std::string& environment,
                                   const std::string& command_line) {
  const std::string command = environment + "exec '" MINI_APPS "'/" + command_line;
  return written_to_terminal(
      80, [&] { ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr)); });
}

/// A program that runs while the test sends it signals. The destructor kills the program.
class Background {
 public:
  explicit Background(const std::string& command_line) {
    const std::string out = folder_ / "out", err = folder_ / "err";
    write_file(out, "");  // the files must exist even if the program is killed at once
    write_file(err, "");
    const std::string command =
        "exec >'" + out + "' 2>'" + err + "'; exec '" MINI_APPS "'/" + command_line;
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("fork failed");
    if (process_ > 0) return;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ~Background() {
    if (process_ > 0) {
      send(SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void send(int signal) const { ::kill(process_, signal); }

  bool is_running() {
    if (process_ > 0 && ::waitpid(process_, &status_, WNOHANG) == process_) process_ = 0;
    return process_ > 0;
  }

  /// Waits for the end.
  Run finish() {
    if (is_running()) ::waitpid(process_, &status_, 0);
    process_ = 0;
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : -1, read_file(folder_ / "out"),
            read_file(folder_ / "err")};
  }

 private:
  TemporaryFolder folder_;
  pid_t process_ = 0;
  int status_ = 0;
};

/// What `--format json` prints.
inline nlohmann::json run_json(const std::string& command_line) {
  return nlohmann::json::parse(run(command_line + " --format json").out);
}

inline bool is_one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

}  // namespace mini::test
