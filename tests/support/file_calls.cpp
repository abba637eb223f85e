// SPDX-License-Identifier: MIT
#include "support/file_calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace mini::test {
namespace {

std::vector<std::string>* recorded = nullptr;

std::string name_of(const std::filesystem::path& path) {
  return path.extension() == ".tmp" ? "temporary" : path.filename().string();
}

void record(const std::string& call) {
  if (recorded != nullptr) recorded->push_back(call);
}

/// The function of the system library that a function of this file hides.
template <typename Function>
Function* hidden(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

FileCalls::FileCalls() { recorded = &names_; }
FileCalls::~FileCalls() { recorded = nullptr; }

}  // namespace mini::test

// These definitions hide those of the system library in the whole process.

extern "C" int fsync(int descriptor) {
  using namespace mini::test;
  std::error_code ignored;
  record("fsync " + name_of(std::filesystem::read_symlink(
                        "/proc/self/fd/" + std::to_string(descriptor), ignored)));
  static auto* const next = hidden<int(int)>("fsync");
  return next(descriptor);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  using namespace mini::test;
  record("rename " + name_of(from) + " " + name_of(to));
  static auto* const next = hidden<int(const char*, const char*)>("rename");
  return next(from, to);
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  using namespace mini::test;
  record("exchange " + name_of(from) + " " + name_of(to));
  static auto* const next =
      hidden<int(int, const char*, int, const char*, unsigned int)>("renameat2");
  return next(from_folder, from, to_folder, to, flags);
}
