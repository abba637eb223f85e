// SPDX-License-Identifier: MIT
#include "files/atomic_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>

#include "files/atomic_file.h"
#include "files/descriptor.h"

namespace mini::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, int error) {
  throw_system_error("cannot write", path, error);
}

/// An absolute path with links followed and without a slash at its end.
fs::path resolve(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) fail(path, error.value());
  if (!target.has_filename()) target = target.parent_path();
  if (!target.has_filename()) fail(path, EINVAL);  // the root, or no path at all
  return target;
}

fs::path hidden_sibling(const fs::path& target, const char* ending) {
  return target.parent_path() / ("." + target.filename().string() + ending);
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail(path, error.value());
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_rename_error(to, errno);
}

/// Returns false if the file system or the kernel cannot exchange folders.
bool exchange_folders(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw_rename_error(b, errno);
  return false;
}

[[noreturn]] void fail_as_busy(const fs::path& target) {
  throw std::runtime_error("cannot write '" + target.string() + "': another process is writing it");
}

/// Locks `folder`, the new folder of `target`, until the descriptor is closed. The kernel releases
/// the lock of a killed process. The descriptor is closed if there is no such folder; there is no
/// lock if the file system has none.
Descriptor lock(const fs::path& folder, const fs::path& target) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (descriptor.is_open() && ::flock(descriptor.number(), LOCK_EX | LOCK_NB) != 0 &&
      errno == EWOULDBLOCK) {
    fail_as_busy(target);
  }
  return descriptor;
}

/// Whether `path` still leads to the folder that `descriptor` has opened.
bool leads_to(const fs::path& path, const Descriptor& descriptor) {
  struct stat a = {}, b = {};
  return ::stat(path.c_str(), &a) == 0 && ::fstat(descriptor.number(), &b) == 0 &&
         a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void sync(const fs::path& folder) {
  if (const int error = sync_folder(folder); error != 0) fail(folder, error);
}

/// A caller may pass the path of an unrelated folder by mistake; its files must not be deleted.
void check_nothing_is_lost(const fs::path& old_folder, const fs::path& new_folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(old_folder)) {
    if (!entry.is_regular_file() || !fs::exists(new_folder / entry.path().filename())) {
      throw std::runtime_error("cannot replace '" + old_folder.string() + "': '" +
                               entry.path().filename().string() + "' in it would be lost");
    }
  }
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& path)
    : target_(resolve(path)),
      new_(hidden_sibling(target_, ".new")),
      old_(hidden_sibling(target_, ".old")) {
  {
    const Descriptor left_by_a_killed_process = lock(new_, target_);
    if (find(target_) == old_) rename_folder(old_, target_);
    if (fs::exists(target_) && !fs::is_directory(target_)) fail(target_, ENOTDIR);
    remove_folder(new_);
    remove_folder(old_);
  }
  if (::mkdir(new_.c_str(), 0777) != 0) {
    if (errno == EEXIST) fail_as_busy(target_);
    fail(target_, errno);
  }
  lock_ = lock(new_, target_);
  // Another process may have removed the folder before it was locked.
  if (lock_.is_open() && !leads_to(new_, lock_)) fail_as_busy(target_);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!new_.empty()) fs::remove_all(new_, ignored);
}

void AtomicFolder::commit() {
  sync(new_);
  bool exchanged = false;
  if (fs::exists(target_)) {
    check_nothing_is_lost(target_, new_);
    exchanged = exchange_folders(new_, target_);
    if (!exchanged) rename_folder(target_, old_);
  }
  if (!exchanged) rename_folder(new_, target_);
  sync(target_.parent_path());  // before the removals: a power cut leaves one folder
  if (exchanged) remove_folder(new_);
  remove_folder(old_);
  new_.clear();
}

fs::path AtomicFolder::find(const fs::path& path) {
  const fs::path target = resolve(path), old = hidden_sibling(target, ".old");
  return !fs::exists(target) && fs::exists(old) ? old : target;
}

}  // namespace mini::detail
