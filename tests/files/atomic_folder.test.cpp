// SPDX-License-Identifier: MIT
#include "files/atomic_folder.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <string>

#include "files/atomic_file.h"
#include "support/files.h"
#include "support/support.h"

namespace fs = std::filesystem;
using mini::detail::AtomicFolder;
using mini::test::ContainsSubstring;
using mini::test::in_child;
using mini::test::in_unprivileged_child;
using mini::test::read_file;
using mini::test::TemporaryFolder;
using mini::test::write_file;

namespace {

using Names = std::set<std::string>;

/// A folder of the files `a` and `b`.
void fill(const fs::path& folder, const std::string& content) {
  for (const char* name : {"a", "b"}) {
    mini::detail::AtomicFile file(folder / name);
    file.write(content);
    file.commit();
  }
}

void save_folder(const fs::path& path, const std::string& content) {
  AtomicFolder folder(path);
  fill(folder.path(), content);
  folder.commit();
}

void check_holds(const fs::path& folder, const std::string& content) {
  CHECK(read_file(folder / "a") == content);
  CHECK(read_file(folder / "b") == content);
}

std::string error_of_saving_folder(const fs::path& path) {
  try {
    save_folder(path, "new");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

/// Has the kernel answer, in this process, that it cannot exchange two paths.
void forbid_exchange() {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RENAME_EXCHANGE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), const_cast<sock_filter*>(filter)};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    throw std::runtime_error("this kernel has no seccomp");
  }
}

}  // namespace

TEST_CASE("a folder appears at commit, whole", "[atomic_folder]") {
  const TemporaryFolder parent;
  AtomicFolder folder(parent / "last");
  fill(folder.path(), "new");
  CHECK_FALSE(fs::exists(parent / "last"));
  folder.commit();
  check_holds(parent / "last", "new");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("an old folder stays until commit, and for good without one", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  {
    const AtomicFolder folder(parent / "last");
    fill(folder.path(), "new");
    check_holds(parent / "last", "old");
  }
  check_holds(parent / "last", "old");
  CHECK(parent.entries() == Names{"last"});

  save_folder(parent / "last", "new");
  check_holds(parent / "last", "new");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("a killed writer leaves the old folder, and the next one clears up", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  const int status = in_child([&] {
    const AtomicFolder folder(parent / "last");
    write_file(folder.path() / "a", "half");
    ::raise(SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(AtomicFolder::find(parent / "last") == parent / "last");
  check_holds(parent / "last", "old");
  CHECK(parent.entries() == Names{"last", ".last.new"});

  save_folder(parent / "last", "new");
  check_holds(parent / "last", "new");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("a kill after the exchange leaves the new folder", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "new");
  save_folder(parent / ".last.new", "old");  // what the exchange put there
  CHECK(AtomicFolder::find(parent / "last") == parent / "last");
  save_folder(parent / "last", "newer");
  check_holds(parent / "last", "newer");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("where folders cannot be exchanged, two renames do it", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  const int status = in_child([&] {
    forbid_exchange();
    save_folder(parent / "last", "new");
  });
  CHECK(status == 0);
  check_holds(parent / "last", "new");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("a kill between two renames leaves the old folder to be found", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  save_folder(parent / ".last.new", "new");
  fs::rename(parent / "last", parent / ".last.old");
  CHECK(AtomicFolder::find(parent / "last") == parent / ".last.old");

  SECTION("and put back by a writer that fails") {
    const AtomicFolder folder(parent / "last");
    check_holds(parent / "last", "old");
  }
  SECTION("and replaced by one that does not") {
    save_folder(parent / "last", "newer");
    check_holds(parent / "last", "newer");
    CHECK(parent.entries() == Names{"last"});
  }
}

TEST_CASE("what is left of an interrupted commit is not found again", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "new");
  save_folder(parent / ".last.old", "old");  // a kill before it was removed
  CHECK(AtomicFolder::find(parent / "last") == parent / "last");
  save_folder(parent / "last", "newer");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("a folder of other files is not replaced", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  SECTION("a file that the new one has not") {
    write_file(parent / "last/thesis.txt", "years of work");
    CHECK_THAT(error_of_saving_folder(parent / "last"),
               ContainsSubstring("cannot replace '" + (parent / "last").string() +
                                 "': 'thesis.txt' in it would be lost"));
    CHECK(fs::exists(parent / "last/thesis.txt"));
  }
  SECTION("a folder in it") {
    fs::remove(parent / "last/b");
    fs::create_directory(parent / "last/b");
    CHECK_THAT(error_of_saving_folder(parent / "last"),
               ContainsSubstring("'b' in it would be lost"));
  }
  CHECK(read_file(parent / "last/a") == "old");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("an empty folder is replaced, a file is not", "[atomic_folder]") {
  const TemporaryFolder parent;
  fs::create_directory(parent / "empty");
  save_folder(parent / "empty", "new");
  check_holds(parent / "empty", "new");
  write_file(parent / "file", "x");
  CHECK_THAT(error_of_saving_folder(parent / "file"), ContainsSubstring("file': Not a directory"));
  CHECK(parent.entries() == Names{"empty", "file"});
}

TEST_CASE("a path may end in a slash, be relative or a link", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last/", "slash");
  check_holds(parent / "last", "slash");

  const fs::path before = fs::current_path();
  fs::current_path(parent.path());
  AtomicFolder folder("last");
  fs::current_path(before);
  fill(folder.path(), "relative");
  folder.commit();
  check_holds(parent / "last", "relative");

  fs::create_directory(parent / "disk");
  save_folder(parent / "disk/real", "old");
  fs::create_directory_symlink("disk/real", parent / "link");
  save_folder(parent / "link", "through the link");
  check_holds(parent / "disk/real", "through the link");
  CHECK(fs::is_symlink(parent / "link"));
}

TEST_CASE("a folder that cannot be written is named with the reason", "[atomic_folder]") {
  const TemporaryFolder parent;
  CHECK_THAT(error_of_saving_folder(parent / "none/last"),
             ContainsSubstring("cannot write '" + (parent / "none/last").string() +
                               "': No such file or directory"));
  CHECK_THAT(error_of_saving_folder(""), ContainsSubstring("cannot write ''"));
  CHECK_THAT(error_of_saving_folder("/"), ContainsSubstring("cannot write '/'"));

  ::chmod(parent.path().c_str(), 0555);
  const int status = in_unprivileged_child([&] {
    const std::string error = error_of_saving_folder(parent / "last");
    if (error.find("Permission denied") == std::string::npos) throw std::runtime_error(error);
  });
  ::chmod(parent.path().c_str(), 0755);
  CHECK(status == 0);
}
