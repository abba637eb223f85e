// SPDX-License-Identifier: MIT
// Reads a file through a memory mapping: the kernel loads each page on first access.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace mini::detail {

/// A private mapping of a regular file. The bytes are not copied. Writes through `data()` change
/// the bytes in memory, never the file.
///
/// Throws std::runtime_error with the path and the reason if the file cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {data_, size_}; }
  char* data() { return data_; }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mini::detail
