// SPDX-License-Identifier: MIT
// What AtomicFile and AtomicFolder flush to the disk, and in which order. After a power cut a
// reader finds the complete old state or the complete new state only in this order.
#include <filesystem>
#include <string>
#include <vector>

#include "files/atomic_file.h"
#include "files/atomic_folder.h"
#include "support/file_calls.h"
#include "support/files.h"
#include "support/support.h"

using mini::detail::AtomicFile;
using mini::detail::AtomicFolder;
using mini::test::FileCalls;
using mini::test::TemporaryFolder;

namespace {

using Calls = std::vector<std::string>;

void replace_file(const std::filesystem::path& path) {
  AtomicFile file(path);
  file.write("new");
  file.commit();
}

void replace_folder(const std::filesystem::path& path) {
  AtomicFolder folder(path);
  replace_file(folder.path() / "state");
  folder.commit();
}

}  // namespace

TEST_CASE("AtomicFile flushes the file, renames it and flushes its folder", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::string parent = folder.path().filename();
  const Calls expected = {"fsync temporary", "rename temporary a", "fsync " + parent};
  for (const char* attempt : {"a new file", "an existing file"}) {
    INFO(attempt);
    const FileCalls calls;
    replace_file(folder / "a");
    CHECK(calls.names() == expected);
  }
}

TEST_CASE("AtomicFolder flushes its files and itself, then its parent", "[atomic_folder]") {
  const TemporaryFolder folder;
  const std::string parent = folder.path().filename();
  Calls expected = {"fsync temporary", "rename temporary state", "fsync .run.new",
                    "fsync .run.new",  "rename .run.new run",    "fsync " + parent};
  {
    const FileCalls calls;
    replace_folder(folder / "run");
    CHECK(calls.names() == expected);
  }
  expected[4] = "exchange .run.new run";
  const FileCalls calls;
  replace_folder(folder / "run");
  CHECK(calls.names() == expected);
}
