// SPDX-License-Identifier: MIT
#include "files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <random>
#include <string>
#include <system_error>

namespace mini::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_error(const fs::path& path, int error) {
  throw std::system_error(error, std::generic_category(),
                          std::string("cannot write '") + path.c_str() + "'");
}

/// The descriptor that `path` names, if it is an entry of this process's /proc/self/fd.
std::optional<int> named_descriptor(const fs::path& path) {
  std::error_code ignored;
  const fs::path folder = fs::canonical(path.parent_path(), ignored);
  if (folder.empty() || folder != fs::canonical("/proc/self/fd", ignored)) return std::nullopt;
  const std::string name = path.filename().string();
  int descriptor = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), descriptor);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return descriptor;
}

/// Follows symbolic links as open() would, but stops at a descriptor's name. The result may name
/// a file that does not exist yet, or, after as many links as the kernel follows, still a link.
fs::path follow_links(fs::path path) {
  for (int links = 0; links < 40; ++links) {
    if (!fs::is_symlink(fs::symlink_status(path)) || named_descriptor(path)) break;
    path = path.parent_path() / fs::read_symlink(path);
  }
  return path;
}

/// A hidden name no other writer has, in the folder of `target`, so that rename() can be atomic.
fs::path temporary_beside(const fs::path& target) {
  constexpr std::size_t kMaxStem = 200;  // of the 255 bytes that file systems allow
  std::random_device random;
  std::string name = "." + target.filename().string().substr(0, kMaxStem) + ".";
  for (int i = 0; i < 16; ++i) name += "0123456789abcdef"[random() % 16];
  return target.parent_path() / (name + ".tmp");
}

}  // namespace

int detail::sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno == EACCES ? 0 : errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error == EINVAL || error == ENOTSUP ? 0 : error;
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  if (path.empty()) fail(ENOENT);
  if (path.native().find('\0') != std::string::npos) fail(EINVAL);  // open() would stop there
  target_ = follow_links(fs::absolute(path));

  if (const std::optional<int> named = named_descriptor(target_)) {
    descriptor_ = ::fcntl(*named, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) fail(errno);
    return;
  }

  struct stat old = {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) fail(errno);
  if (exists && !S_ISREG(old.st_mode)) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) fail(errno);
    return;
  }

  if (exists && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) fail(errno);
  const mode_t mode = exists ? old.st_mode & 0777 : 0666;
  temporary_ = temporary_beside(target_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (descriptor_ < 0) fail(errno);
  if (exists && ::fchmod(descriptor_, mode) != 0) fail(errno);  // open() subtracted the umask
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  // A pipe or a terminal has no disk to reach, and says EINVAL.
  if (!written_directly() && ::fsync(descriptor_) != 0) fail(errno);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0 && errno != EINTR) fail(errno);
  if (written_directly()) return;

  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  // The only error after which the new file stands in its place.
  if (const int error = detail::sync_folder(target_.parent_path()); error != 0) fail(error);
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  descriptor_ = -1;
  temporary_.clear();
}

void AtomicFile::fail(int error) {
  discard();
  throw_error(path_, error);
}

}  // namespace mini::detail
