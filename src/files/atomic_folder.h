// Replacing a folder of files so that its place never holds half of one.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

namespace mini::detail {

/// A folder that appears at its path whole, on `commit()`, or not at all.
///
///     AtomicFolder folder("run/last");
///     save(folder.path() / "model");      // each file flushed, as AtomicFile does
///     folder.commit();
///
/// Until then its files stand beside the target, in `.NAME.new`, and whatever the path held before
/// is untouched: by an error, by an exception, by a killed process.
///
/// - `commit()` exchanges the new folder and the old one in one step. Where the file system cannot,
///   it renames the old one to `.NAME.old`, then the new one to its place; after a kill between the
///   two `find()` gives the old one, and the next writer puts it back.
/// - What a killed writer has left is never found, and removed by the next one. There may be only
///   one writer of a path at a time.
/// - An old folder is only replaced if it holds nothing but files that the new one has too.
///
/// Throws std::runtime_error with the path and the reason.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& path);
  /// Without `commit()`: removes the new folder.
  ~AtomicFolder();

  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write the files.
  const std::filesystem::path& path() const { return new_; }

  /// Puts the folder in its place; afterwards the object is spent.
  void commit();

  /// Where the folder that was last put at `path` stands: there, or, after an interrupted
  /// `commit()`, beside it. It may not exist.
  static std::filesystem::path find(const std::filesystem::path& path);

 private:
  std::filesystem::path target_;  // absolute, links followed
  std::filesystem::path new_;     // beside it
  std::filesystem::path old_;
};

}  // namespace mini::detail
