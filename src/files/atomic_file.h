// SPDX-License-Identifier: MIT
// Replaces a file atomically: its path holds the old file or the whole new one, never a part.
#pragma once

#include <filesystem>
#include <string_view>

#include "files/descriptor.h"

namespace mini::detail {

/// A file that appears at its path on `commit()`, complete, or not at all.
///
///     AtomicFile file("model.safetensors");
///     file.write(header);
///     file.write(data);
///     file.commit();
///
/// `write()` writes to a hidden temporary file in the same folder (`.NAME.HEX.tmp`). If an error or
/// an exception ends the writing before `commit()`, the temporary file is removed and the old file
/// stays unchanged. If the process is killed, the old file stays unchanged and the temporary file
/// remains.
///
/// - The new file gets the mode of the old one. Both the folder and the old file must be writable.
/// - If the path is a symbolic link, the link stays and the file that it leads to is replaced.
/// - A device or a pipe is written directly. The name of a descriptor (`/dev/stdout`, `/dev/fd/3`)
///   means that descriptor, which is written directly too.
///
/// Throws std::system_error with the path and the reason. Writes are not buffered.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  /// Removes the temporary file, unless `commit()` has renamed it.
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);

  /// Flushes the bytes to the disk and moves the file to its path. Call it once, after the last
  /// `write()`.
  void commit();

 private:
  bool written_directly() const { return temporary_.empty(); }
  void discard() noexcept;
  [[noreturn]] void fail(int error);

  std::filesystem::path path_;       // as the caller wrote it, for messages
  std::filesystem::path target_;     // absolute, links followed
  std::filesystem::path temporary_;  // in the folder of target_; empty if written directly
  Descriptor descriptor_;
};

/// Flushes the entries of `folder` to the disk, so that renames in it survive a power cut. Returns
/// errno, or 0. Also returns 0 if the folder cannot be opened for reading or if the file system
/// cannot flush folders: there is no better guarantee then.
int sync_folder(const std::filesystem::path& folder);

}  // namespace mini::detail
