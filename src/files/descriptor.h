// SPDX-License-Identifier: MIT
// A file descriptor that its owner closes, and the exception for a failed system call on a file.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace mini::detail {

/// Owns a file descriptor and closes it at the end of its scope.
///
///     const Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
///     if (!file.is_open()) ...  // errno is the one of open()
class Descriptor {
 public:
  Descriptor() = default;
  /// `number` is the result of open(), dup() or the like; it is negative after an error.
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (is_open()) ::close(number_);
  }

  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    const Descriptor old(std::exchange(number_, std::exchange(other.number_, -1)));
    return *this;
  }

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

  /// Closes the descriptor now. Returns errno, or 0. Some file systems report a failed write only
  /// here. After EINTR the descriptor is closed too, as Linux guarantees.
  int close() { return ::close(std::exchange(number_, -1)) == 0 || errno == EINTR ? 0 : errno; }

 private:
  int number_ = -1;
};

/// Throws std::system_error with the message "ACTION 'PATH': REASON", for example
/// "cannot write 'a/b': Permission denied". `error` is the errno that gives the reason.
[[noreturn]] inline void throw_system_error(const std::string& action,
                                            const std::filesystem::path& path, int error) {
  // c_str() ends at a NUL in the path: behind one, what() would not show the reason.
  throw std::system_error(error, std::generic_category(), action + " '" + path.c_str() + "'");
}

/// Throws std::system_error for a rename() onto `path` that failed.
[[noreturn]] inline void throw_rename_error(const std::filesystem::path& path, int error) {
  if (error == EBUSY) {
    throw std::system_error(error, std::generic_category(),
                            "cannot write '" + path.string() +
                                "': a mounted file or folder cannot be replaced, only what is in "
                                "it; choose another path");
  }
  throw_system_error("cannot write", path, error);
}

}  // namespace mini::detail
