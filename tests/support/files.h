// SPDX-License-Identifier: MIT
// What tests of files share: temporary folders, files as strings, and child processes.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace mini::test {

/// An empty folder, removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mini-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  /// The names of all entries, hidden ones too.
  std::set<std::string> entries() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!stream.flush()) throw std::runtime_error("cannot write " + path.string());
}

/// The memory of this process that no file backs, in bytes.
inline std::int64_t private_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return 1024 * std::stoll(line.substr(8));
  }
  throw std::runtime_error("no RssAnon in /proc/self/status");
}

/// Runs `body` in a child process, which `body` may kill or restrict, and returns the status from
/// waitpid(). The child exits with 0 if `body` returns and with 1 if it throws.
template <typename Body>
int in_child(Body body) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::cerr << "in the child process: " << error.what() << '\n';
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// Runs `body` in a child process in which `source` is mounted at `target`. Returns false if this
/// process may not mount; then `body` does not run.
template <typename Body>
bool in_child_with_mount(const std::filesystem::path& source, const std::filesystem::path& target,
                         Body body) {
  constexpr int kNoMounts = 77;
  const int status = in_child([&] {
    // Private: the mount must not reach other processes.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      ::_exit(kNoMounts);
    }
    body();
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMounts) return false;
  if (status != 0) throw std::runtime_error("the child process failed");
  return true;
}

/// Runs `body` in a child process without root's privileges. Root could write to any file.
template <typename Body>
int in_unprivileged_child(Body body) {
  return in_child([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) throw std::runtime_error("setuid failed");
    body();
  });
}

}  // namespace mini::test
