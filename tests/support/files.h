// What the tests of files share: a folder of their own, whole files as strings, a child process.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mini::test {

/// An empty folder, removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mini-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder like " + name);
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

/// The process's private pages in memory, in bytes.
inline std::int64_t private_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return 1024 * std::stoll(line.substr(8));
  }
  throw std::runtime_error("no RssAnon in /proc/self/status");
}

/// A safetensors file put together by hand.
inline std::string safetensors_file(std::string_view header, std::string_view data = "") {
  std::string bytes(8, '\0');
  for (unsigned i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes.append(header).append(data);
}

/// `file` with one to three random faults: bits flipped, bytes replaced by ones that mean something
/// in a header, pieces removed, doubled or cut off, numbers exchanged for awkward ones.
inline std::string mutate(std::string file, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\\",
                                                   "-",
                                                   ".",
                                                   "0",
                                                   "9",
                                                   " ",
                                                   std::string(1, '\0'),
                                                   "\xff",
                                                   "-1",
                                                   "2.5",
                                                   "1e3",
                                                   "null",
                                                   "true",
                                                   "9223372036854775807",
                                                   "18446744073709551615",
                                                   "4294967296",
                                                   "F32",
                                                   "BF16",
                                                   "dtype",
                                                   "shape",
                                                   "data_offsets",
                                                   "__metadata__",
                                                   "\\u0000"};
  const auto up_to = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit)(random);
  };
  for (std::size_t faults = 1 + up_to(2); faults > 0 && !file.empty(); --faults) {
    const std::size_t at = up_to(file.size() - 1);
    const std::size_t length = std::min(1 + up_to(15), file.size() - at);
    const std::string& piece = kPieces[up_to(kPieces.size() - 1)];
    switch (up_to(6)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ 1 << up_to(7));
        break;
      case 1:
        file.replace(at, 1, piece);
        break;
      case 2:
        file.insert(at, piece);
        break;
      case 3:
        file.erase(at, length);
        break;
      case 4:
        file.insert(at, file, at, length);
        break;
      case 5:
        file.resize(at);
        break;
      default: {
        const std::size_t digit = file.find_first_of("0123456789", at);
        if (digit != std::string::npos) file.replace(digit, 1, piece);
      }
    }
  }
  return file;
}

/// Runs `body` in a child process, for what would end or cripple this one, and returns what
/// waitpid() says. A body that returns exits with 0, one that throws with 1.
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

/// The same without root's power to write anywhere (and so to do harm should the code be wrong).
template <typename Body>
int in_unprivileged_child(Body body) {
  return in_child([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) throw std::runtime_error("setuid failed");
    body();
  });
}

}  // namespace mini::test
