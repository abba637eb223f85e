// SPDX-License-Identifier: MIT
#include "subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace mini::app {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "cannot create a pipe");
    }
    read_end = ends[0];
    write_end = ends[1];
  }
};

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& command) : name_(command.front()) {
  std::signal(SIGPIPE, SIG_IGN);  // so that a write to a program that has ended returns an error
  const Pipe to, from;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from.write_end, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to.read_end);
  close(from.write_end);
  if (error != 0) {
    close(to.write_end);
    close(from.read_end);
    throw std::system_error(error, std::generic_category(), "cannot start '" + name_ + "'");
  }
  input_ = fdopen(to.write_end, "w");
  output_ = fdopen(from.read_end, "r");
}

Subprocess::~Subprocess() {
  std::fclose(input_);
  std::fclose(output_);
  waitpid(pid_, nullptr, 0);
}

std::string Subprocess::ask(const std::string& line) {
  char* answer = nullptr;
  size_t capacity = 0;
  const bool asked = std::fputs((line + '\n').c_str(), input_) >= 0 && std::fflush(input_) == 0;
  const ssize_t length = asked ? getline(&answer, &capacity, output_) : -1;
  const std::unique_ptr<char, decltype(&std::free)> owner(answer, &std::free);
  if (length <= 0) {
    throw std::runtime_error("'" + name_ + "' ended without an answer");
  }
  return {answer, static_cast<size_t>(length)};
}

}  // namespace mini::app
