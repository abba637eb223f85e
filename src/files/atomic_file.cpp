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

/// Follows symbolic links as open() does, but stops at the name of a descriptor. The result may
/// name a file that does not exist yet. After 40 links, the kernel's limit, it is still a link.
fs::path follow_links(fs::path path) {
  for (int links = 0; links < 40; ++links) {
    if (!fs::is_symlink(fs::symlink_status(path)) || named_descriptor(path)) break;
    path = path.parent_path() / fs::read_symlink(path);
  }
  return path;
}

/// A hidden, random name in the folder of `target`. rename() is atomic only within a file system.
fs::path temporary_name(const fs::path& target) {
  constexpr std::size_t kMaxStem = 200;  // of the 255 bytes that file systems allow
  std::random_device random;
  std::string name = "." + target.filename().string().substr(0, kMaxStem) + ".";
  for (int i = 0; i < 16; ++i) name += "0123456789abcdef"[random() % 16];
  return target.parent_path() / (name + ".tmp");
}

}  // namespace

int sync_folder(const fs::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open()) return errno == EACCES ? 0 : errno;
  const int error = ::fsync(descriptor.number()) == 0 ? 0 : errno;
  return error == EINVAL || error == ENOTSUP ? 0 : error;
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  if (path.empty()) fail(ENOENT);
  if (path.native().find('\0') != std::string::npos) fail(EINVAL);  // open() would stop there
  target_ = follow_links(fs::absolute(path));

  if (const std::optional<int> named = named_descriptor(target_)) {
    descriptor_ = Descriptor(::fcntl(*named, F_DUPFD_CLOEXEC, 0));
    if (!descriptor_.is_open()) fail(errno);
    return;
  }

  struct stat old = {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) fail(errno);
  if (exists && !S_ISREG(old.st_mode)) {
    descriptor_ = Descriptor(::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!descriptor_.is_open()) fail(errno);
    return;
  }

  if (exists && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) fail(errno);
  const mode_t mode = exists ? old.st_mode & 0777 : 0666;
  temporary_ = temporary_name(target_);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  descriptor_ = Descriptor(::open(temporary_.c_str(), kFlags, mode));
  if (!descriptor_.is_open()) fail(errno);
  // open() subtracted the umask.
  if (exists && ::fchmod(descriptor_.number(), mode) != 0) fail(errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  // fsync() of a pipe or a terminal fails with EINVAL.
  if (!written_directly() && ::fsync(descriptor_.number()) != 0) fail(errno);
  if (const int error = descriptor_.close(); error != 0) fail(error);
  if (written_directly()) return;

  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    discard();
    throw_rename_error(path_, error);
  }
  temporary_.clear();
  // After this error, unlike the others, the new file is at its path.
  if (const int error = sync_folder(target_.parent_path()); error != 0) fail(error);
}

void AtomicFile::discard() noexcept {
  descriptor_ = Descriptor();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(int error) {
  discard();
  throw_system_error("cannot write", path_, error);
}

}  // namespace mini::detail
