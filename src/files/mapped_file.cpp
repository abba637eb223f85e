// SPDX-License-Identifier: MIT
#include "files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace mini::detail {
namespace {

/// Closed at the end of its scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto require = [&](bool done) {
    if (!done) {
      throw std::system_error(errno, std::generic_category(),
                              "cannot read '" + path.string() + "'");
    }
  };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status = {};
  require(file.number >= 0 && ::fstat(file.number, &status) == 0);
  if (!S_ISREG(status.st_mode)) {  // a pipe would not even open without O_NONBLOCK
    throw std::runtime_error("'" + path.string() + "' is no regular file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // nothing to map
  // Without a reserve of swap, so that a file larger than the memory can be mapped too.
  void* data =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.number, 0);
  require(data != MAP_FAILED);
  data_ = static_cast<char*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace mini::detail
