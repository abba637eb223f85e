// SPDX-License-Identifier: MIT
#include "files/atomic_folder.h"

#include <fcntl.h>
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
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, errno);
}

/// Returns false if the file system or the kernel cannot exchange folders.
bool exchange_folders(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) fail(b, errno);
  return false;
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
  if (find(target_) == old_) rename_folder(old_, target_);
  if (fs::exists(target_) && !fs::is_directory(target_)) fail(target_, ENOTDIR);
  remove_folder(new_);
  remove_folder(old_);
  if (::mkdir(new_.c_str(), 0777) != 0) fail(target_, errno);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!new_.empty()) fs::remove_all(new_, ignored);
}

void AtomicFolder::commit() {
  sync(new_);
  if (!fs::exists(target_)) {
    rename_folder(new_, target_);
  } else {
    check_nothing_is_lost(target_, new_);
    if (!exchange_folders(new_, target_)) {
      rename_folder(target_, old_);
      rename_folder(new_, target_);
    }
  }
  sync(target_.parent_path());  // before the removals: a power cut leaves one folder
  remove_folder(new_);
  remove_folder(old_);
  new_.clear();
}

fs::path AtomicFolder::find(const fs::path& path) {
  const fs::path target = resolve(path), old = hidden_sibling(target, ".old");
  return !fs::exists(target) && fs::exists(old) ? old : target;
}

}  // namespace mini::detail
