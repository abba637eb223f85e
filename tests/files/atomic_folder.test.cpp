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
using mini::test::in_child_with_mount;
using mini::test::in_unprivileged_child;
using mini::test::read_file;
using mini::test::TemporaryFolder;
using mini::test::write_file;

namespace {

using Names = std::set<std::string>;

/// Writes the files `a` and `b` to `folder`.
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

/// Makes renameat2() with RENAME_EXCHANGE fail with EINVAL in this process.
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

TEST_CASE("AtomicFolder creates the complete folder on commit", "[atomic_folder]") {
  const TemporaryFolder parent;
  AtomicFolder folder(parent / "last");
  fill(folder.path(), "new");
  CHECK_FALSE(fs::exists(parent / "last"));
  folder.commit();
  check_holds(parent / "last", "new");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("AtomicFolder keeps the old folder until commit, and without a commit",
          "[atomic_folder]") {
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

TEST_CASE("the next writer removes what a killed writer left", "[atomic_folder]") {
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

TEST_CASE("a kill after the exchange leaves the new folder in place", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "new");
  save_folder(parent / ".last.new", "old");  // the exchange left the old folder there
  CHECK(AtomicFolder::find(parent / "last") == parent / "last");
  save_folder(parent / "last", "newer");
  check_holds(parent / "last", "newer");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("AtomicFolder renames twice if the kernel cannot exchange folders", "[atomic_folder]") {
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

TEST_CASE("find returns the old folder after a kill between the two renames", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  save_folder(parent / ".last.new", "new");
  fs::rename(parent / "last", parent / ".last.old");
  CHECK(AtomicFolder::find(parent / "last") == parent / ".last.old");

  SECTION("a writer that fails renames it back") {
    const AtomicFolder folder(parent / "last");
    check_holds(parent / "last", "old");
  }
  SECTION("a writer that commits replaces it") {
    save_folder(parent / "last", "newer");
    check_holds(parent / "last", "newer");
    CHECK(parent.entries() == Names{"last"});
  }
}

TEST_CASE("find ignores an old folder that an interrupted commit did not remove",
          "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "new");
  save_folder(parent / ".last.old", "old");  // as after a kill before its removal
  CHECK(AtomicFolder::find(parent / "last") == parent / "last");
  save_folder(parent / "last", "newer");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("AtomicFolder refuses to replace a folder with other entries", "[atomic_folder]") {
  const TemporaryFolder parent;
  save_folder(parent / "last", "old");
  SECTION("a file that the new folder does not have") {
    write_file(parent / "last/thesis.txt", "years of work");
    CHECK_THAT(error_of_saving_folder(parent / "last"),
               ContainsSubstring("cannot replace '" + (parent / "last").string() +
                                 "': 'thesis.txt' in it would be lost"));
    CHECK(fs::exists(parent / "last/thesis.txt"));
  }
  SECTION("a folder") {
    fs::remove(parent / "last/b");
    fs::create_directory(parent / "last/b");
    CHECK_THAT(error_of_saving_folder(parent / "last"),
               ContainsSubstring("'b' in it would be lost"));
  }
  CHECK(read_file(parent / "last/a") == "old");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("AtomicFolder replaces an empty folder but not a file", "[atomic_folder]") {
  const TemporaryFolder parent;
  fs::create_directory(parent / "empty");
  save_folder(parent / "empty", "new");
  check_holds(parent / "empty", "new");
  write_file(parent / "file", "x");
  CHECK_THAT(error_of_saving_folder(parent / "file"), ContainsSubstring("file': Not a directory"));
  CHECK(parent.entries() == Names{"empty", "file"});
}

TEST_CASE("AtomicFolder accepts a trailing slash, a relative path and a link", "[atomic_folder]") {
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

TEST_CASE("errors of AtomicFolder contain the path and the reason", "[atomic_folder]") {
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

TEST_CASE("AtomicFolder refuses a path that another process is writing", "[atomic_folder]") {
  const TemporaryFolder parent;
  const auto error_in_child = [&](const std::string& expected) {
    return in_child([&] {
      const std::string error = error_of_saving_folder(parent / "last");
      if (error.find(expected) == std::string::npos) throw std::runtime_error(error);
    });
  };
  {
    AtomicFolder folder(parent / "last");
    fill(folder.path(), "first");
    CHECK(error_in_child("cannot write '" + (parent / "last").string() +
                         "': another process is writing it") == 0);
    folder.commit();
  }
  check_holds(parent / "last", "first");
  CHECK(error_in_child("") == 0);
  check_holds(parent / "last", "new");
}

TEST_CASE("AtomicFolder is not blocked by a process that was killed", "[atomic_folder]") {
  const TemporaryFolder parent;
  const int status = in_child([&] {
    const AtomicFolder folder(parent / "last");
    fill(folder.path(), "killed");
    ::raise(SIGKILL);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(parent.entries() == Names{".last.new"});
  save_folder(parent / "last", "new");
  check_holds(parent / "last", "new");
  CHECK(parent.entries() == Names{"last"});
}

TEST_CASE("AtomicFolder says why it cannot replace a mounted folder", "[atomic_folder]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "source");
  fs::create_directory(folder / "mounted");
  const bool mounted = in_child_with_mount(folder / "source", folder / "mounted", [&] {
    try {
      save_folder(folder / "mounted", "new");
    } catch (const std::exception& error) {
      const std::string reason = error.what();
      if (reason.find("mounted': a mounted file or folder cannot be replaced") != reason.npos) {
        return;
      }
      throw;
    }
    throw std::runtime_error("no error");
  });
  if (!mounted) WARN("skipped: this process may not mount");
  CHECK(folder.entries() == Names{"mounted", "source"});
  CHECK(fs::is_empty(folder / "source"));
}
