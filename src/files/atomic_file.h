// Writing a file so that its place never holds half of one.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string_view>

namespace mini::detail {

/// A file that appears at its path whole, on `commit()`, or not at all.
///
///     AtomicFile file("model.safetensors");
///     file.write(header);
///     file.write(data);
///     file.commit();
///
/// Until then the bytes stand in a hidden temporary file beside the target (`.NAME.HEX.tmp`), and
/// whatever the path held before is untouched: by an error, by an exception between the writes, by
/// a killed process (which leaves the temporary behind).
///
/// - An existing file keeps its mode, and must be writable itself, not only its folder.
/// - A symbolic link stays one: the file it leads to is replaced.
/// - What is no regular file (a device, a pipe) is written directly, and a descriptor's name
///   (`/dev/stdout`, `/dev/fd/3`) means that descriptor.
///
/// Throws std::system_error with the path and the reason. Writes are not buffered.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  /// Without `commit()`: removes the temporary file.
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);

  /// Flushes the bytes to the disk and puts the file in its place; afterwards the object is spent.
  void commit();

 private:
  bool written_directly() const { return temporary_.empty(); }
  void discard() noexcept;
  [[noreturn]] void fail(int error);

  std::filesystem::path path_;       // as the caller wrote it, for messages
  std::filesystem::path target_;     // absolute, links followed
  std::filesystem::path temporary_;  // beside target_; empty if the target is written directly
  int descriptor_ = -1;
};

namespace detail {

/// Makes renames in `folder` survive a power cut. Returns errno, or 0. Folders that cannot be
/// opened for reading and file systems without the operation give no better guarantee, which is no
/// error.
int sync_folder(const std::filesystem::path& folder);

}  // namespace detail

}  // namespace mini::detail
