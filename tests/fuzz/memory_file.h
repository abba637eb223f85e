// SPDX-License-Identifier: MIT
// What the fuzz targets share: a file in memory for readers that expect a path, and a check.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace mini::fuzz {

/// Ends the program if `holds` is false. libFuzzer then saves the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// A file that exists only in memory and has a path in this process.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", 0)) {
    require(descriptor_ >= 0, "memfd_create succeeds");
  }

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  void replace(std::string_view bytes) {
    require(::ftruncate(descriptor_, 0) == 0, "ftruncate succeeds");
    const auto written = ::pwrite(descriptor_, bytes.data(), bytes.size(), 0);
    require(written == static_cast<ssize_t>(bytes.size()), "pwrite succeeds");
  }

  std::string contents() const {
    std::string bytes(static_cast<std::size_t>(::lseek(descriptor_, 0, SEEK_END)), '\0');
    const auto read = ::pread(descriptor_, bytes.data(), bytes.size(), 0);
    require(read == static_cast<ssize_t>(bytes.size()), "pread succeeds");
    return bytes;
  }

 private:
  int descriptor_;
};

/// Returns a safetensors file with the length field corrected. Without the correction, every byte
/// that the fuzzer inserts or removes would fail at the first check.
inline std::string with_correct_length(std::string_view file) {
  const std::size_t end = file.rfind('}') + 1;  // 0 if there is none
  if (end <= 8) return std::string(file);
  std::string corrected(file);
  for (unsigned i = 0; i < 8; ++i) corrected[i] = static_cast<char>((end - 8) >> (8 * i) & 0xff);
  return corrected;
}

}  // namespace mini::fuzz
