// SPDX-License-Identifier: MIT
// The exception for a failed system call on a file.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace mini::detail {

/// Throws std::system_error with the message "ACTION 'PATH': REASON", for example
/// "cannot write 'a/b': Permission denied". `error` is the errno that gives the reason.
[[noreturn]] inline void throw_system_error(const std::string& action,
                                            const std::filesystem::path& path, int error) {
  // c_str() ends at a NUL in the path: behind one, what() would not show the reason.
  throw std::system_error(error, std::generic_category(), action + " '" + path.c_str() + "'");
}

}  // namespace mini::detail
