// SPDX-License-Identifier: MIT
#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <stdexcept>
#include <string>

#include "files/descriptor.h"

namespace mini::detail {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto require = [&](bool done) {
    if (!done) throw_system_error("cannot read", path, errno);
  };
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  require(file.is_open() && ::fstat(file.number(), &status) == 0);
  if (!S_ISREG(status.st_mode)) {
    throw std::runtime_error("'" + path.string() + "' is not a regular file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap() refuses length 0
  // MAP_NORESERVE reserves no swap space, so a file larger than the memory can be mapped too.
  constexpr int kFlags = MAP_PRIVATE | MAP_NORESERVE;
  void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, kFlags, file.number(), 0);
  require(data != MAP_FAILED);
  data_ = static_cast<char*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace mini::detail
