// SPDX-License-Identifier: MIT
// Replaces a folder of files as a whole, so that no reader finds a mixture of old and new files.
#pragma once

#include <filesystem>

#include "files/descriptor.h"

namespace mini::detail {

/// A folder that appears at its path on `commit()`, complete, or not at all.
///
///     AtomicFolder folder("run/last");
///     save(folder.path() / "model");      // flush each file, as AtomicFile does
///     folder.commit();
///
/// The caller writes the files to `path()`, a folder `.NAME.new` in the same parent folder. Until
/// `commit()` the old folder stays unchanged, even after an error, an exception or a kill.
///
/// - `commit()` exchanges the new folder and the old one in one step. If the file system cannot
///   exchange folders, `commit()` renames the old folder to `.NAME.old` and then the new folder to
///   its path. After a kill between these two renames, `find()` returns `.NAME.old`, and the next
///   AtomicFolder of this path renames it back.
/// - `find()` never returns an incomplete folder. The next AtomicFolder of this path removes what a
///   killed process left.
/// - A path has one writer at a time: the constructor throws while another process is between its
///   constructor and `commit()`. A file system without locks does not check this.
/// - `commit()` replaces an old folder only if each of its entries is a file that the new folder
///   has too.
///
/// Throws std::runtime_error with the path and the reason.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& path);
  /// Removes the new folder, unless `commit()` has moved it.
  ~AtomicFolder();

  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The folder to write the files to.
  const std::filesystem::path& path() const { return new_; }

  /// Moves the folder to its path. Call it once.
  void commit();

  /// The folder that was committed last to `path`. That is `path`, with links followed, or
  /// `.NAME.old` after an interrupted `commit()`. The folder need not exist.
  static std::filesystem::path find(const std::filesystem::path& path);

 private:
  std::filesystem::path target_;  // absolute, links followed
  std::filesystem::path new_;     // .NAME.new; empty after commit()
  std::filesystem::path old_;     // .NAME.old
  Descriptor lock_;               // of .NAME.new
};

}  // namespace mini::detail
