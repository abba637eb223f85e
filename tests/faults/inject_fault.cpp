// SPDX-License-Identifier: MIT
// A library for LD_PRELOAD that counts a program's calls on the files of one folder and makes one
// of them fail, or kills the program there. Only calls that can change a file are counted.
//
//   FAULT_FOLDER  counts calls on paths that begin with this text
//   FAULT_AT      number of the call, from 1
//   FAULT         errno of the failed call; or "kill" to kill the program before the call, or
//                 "tear" to kill it after half of the bytes of a write
//   FAULT_LOG     file to which each counted call appends a line, "write /path"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

/// The C library's function of this name.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

// The programs use absolute paths in the folder, or paths relative to a descriptor.
std::string path_at(int folder, const char* path) {
  if (path[0] == '/') return path;
  return (folder == AT_FDCWD ? "." : path_of(folder)) + "/" + path;
}

void log(const std::string& call) {
  static const std::string name = variable("FAULT_LOG");
  if (name.empty()) return;
  static const int file = next<int(const char*, int, ...)>("open")(
      name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const std::string line = call + "\n";
  [[maybe_unused]] const ssize_t ignored =
      next<ssize_t(int, const void*, size_t)>("write")(file, line.data(), line.size());
}

/// Whether this call is counted and has the number FAULT_AT.
bool is_chosen(const char* call, const std::string& path) {
  static const std::string folder = variable("FAULT_FOLDER");
  static const long at = std::atol(variable("FAULT_AT").c_str());
  static std::atomic<long> count = 0;
  if (folder.empty() || path.compare(0, folder.size(), folder) != 0) return false;
  log(std::string(call) + " " + path);
  return ++count == at;
}

/// Returns whether this call must fail, with errno set, or kills the program. `write_half` runs
/// before the kill in the middle of a write.
template <typename WriteHalf>
bool is_faulty(const char* call, const std::string& path, WriteHalf write_half) {
  if (!is_chosen(call, path)) return false;
  const std::string fault = variable("FAULT");
  if (fault == "tear") write_half();
  if (fault == "tear" || fault == "kill") ::raise(SIGKILL);
  errno = std::atoi(fault.c_str());
  return true;
}

bool is_faulty(const char* call, const std::string& path) {
  return is_faulty(call, path, [] {});
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (is_faulty("open", path_at(AT_FDCWD, path))) return -1;
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (is_faulty("open", path_at(folder, path))) return -1;
  return next<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  const auto write = next<ssize_t(int, const void*, size_t)>("write");
  if (is_faulty("write", path_of(descriptor), [&] { write(descriptor, bytes, size / 2); })) {
    return -1;
  }
  return write(descriptor, bytes, size);
}

int close(int descriptor) {
  const bool faulty = is_faulty("close", path_of(descriptor));
  const int error = errno;
  const int result = next<int(int)>("close")(descriptor);  // Linux closes it even if close() fails
  if (!faulty) return result;
  errno = error;
  return -1;
}

int fsync(int descriptor) {
  return is_faulty("fsync", path_of(descriptor)) ? -1 : next<int(int)>("fsync")(descriptor);
}

int ftruncate(int descriptor, off_t size) {
  if (is_faulty("ftruncate", path_of(descriptor))) return -1;
  return next<int(int, off_t)>("ftruncate")(descriptor, size);
}

int fchmod(int descriptor, mode_t mode) {
  if (is_faulty("fchmod", path_of(descriptor))) return -1;
  return next<int(int, mode_t)>("fchmod")(descriptor, mode);
}

int mkdir(const char* path, mode_t mode) {
  if (is_faulty("mkdir", path_at(AT_FDCWD, path))) return -1;
  return next<int(const char*, mode_t)>("mkdir")(path, mode);
}

int rename(const char* from, const char* to) {
  if (is_faulty("rename", path_at(AT_FDCWD, to))) return -1;
  return next<int(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (is_faulty("rename", path_at(to_folder, to))) return -1;
  return next<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from,
                                                                              to_folder, to, flags);
}

int unlink(const char* path) {
  if (is_faulty("unlink", path_at(AT_FDCWD, path))) return -1;
  return next<int(const char*)>("unlink")(path);
}

int unlinkat(int folder, const char* path, int flags) {
  if (is_faulty("unlink", path_at(folder, path))) return -1;
  return next<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}

}  // extern "C"
