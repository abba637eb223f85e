// SPDX-License-Identifier: MIT
#include "files/atomic_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <string>
#include <system_error>

#include "files/descriptor.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"

namespace fs = std::filesystem;
using mini::detail::AtomicFile;
using mini::detail::Descriptor;
using mini::test::in_child;
using mini::test::in_child_with_mount;
using mini::test::in_unprivileged_child;
using mini::test::read_file;
using mini::test::require_error;
using mini::test::TemporaryFolder;
using mini::test::write_file;

namespace {

using Names = std::set<std::string>;

void save(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

/// The message of the std::system_error that saving throws; "" if it throws none.
std::string error_of_saving(const fs::path& path, std::string_view bytes = "new") {
  try {
    save(path, bytes);
  } catch (const std::system_error& error) {
    return error.what();
  }
  return "";
}

mode_t mode_of(const fs::path& path) {
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("AtomicFile creates the complete file on commit", "[atomic_file]") {
  const TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.write("one ");
  file.write("two");
  CHECK_FALSE(fs::exists(folder / "a"));
  file.commit();
  CHECK(read_file(folder / "a") == "one two");
  CHECK(folder.entries() == Names{"a"});
}

TEST_CASE("AtomicFile keeps the old file until commit, and without a commit", "[atomic_file]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new");
    CHECK(read_file(folder / "a") == "old");
  }
  CHECK(read_file(folder / "a") == "old");
  CHECK(folder.entries() == Names{"a"});

  save(folder / "a", "new");
  CHECK(read_file(folder / "a") == "new");
}

TEST_CASE("after an exception between two writes only the old file remains", "[atomic_file]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  const auto interrupted = [&] {
    AtomicFile file(folder / "a");
    file.write("half");
    throw std::runtime_error("no second half");
  };
  CHECK_THROWS_AS(interrupted(), std::runtime_error);
  CHECK(read_file(folder / "a") == "old");
  CHECK(folder.entries() == Names{"a"});
}

TEST_CASE("a killed process leaves the old file and a hidden temporary file", "[atomic_file]") {
  const TemporaryFolder folder;
  write_file(folder / "a.safetensors", "old");
  const int status = in_child([&] {
    AtomicFile file(folder / "a.safetensors");
    file.write("half");
    ::raise(SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(read_file(folder / "a.safetensors") == "old");

  Names left = folder.entries();
  left.erase("a.safetensors");
  REQUIRE(left.size() == 1);
  CHECK(left.begin()->front() == '.');
  CHECK(fs::path(*left.begin()).extension() == ".tmp");
}

TEST_CASE("AtomicFile reports a full disk and keeps the old file", "[atomic_file]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit one_kilobyte = {1024, 1024};
    ::setrlimit(RLIMIT_FSIZE, &one_kilobyte);
    const std::string error = error_of_saving(folder / "a", std::string(4096, 'x'));
    require_error(error, (folder / "a").string());
    require_error(error, "File too large");
  });
  CHECK(status == 0);
  CHECK(read_file(folder / "a") == "old");
  CHECK(folder.entries() == Names{"a"});

  const int device = in_unprivileged_child(
      [] { require_error(error_of_saving("/dev/full"), "'/dev/full': No space left on device"); });
  CHECK(device == 0);
}

TEST_CASE("after a failed write every further call of AtomicFile fails", "[atomic_file]") {
  const int status = in_unprivileged_child([] {
    AtomicFile file("/dev/full");
    for (int i = 0; i < 2; ++i) {
      try {
        file.write("x");
      } catch (const std::system_error&) {
        continue;
      }
      throw std::runtime_error("a write succeeded");
    }
    try {
      file.commit();
    } catch (const std::system_error&) {
      return;
    }
    throw std::runtime_error("commit succeeded");
  });
  CHECK(status == 0);
}

TEST_CASE("errors of AtomicFile contain the path and the reason", "[atomic_file]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  CHECK(error_of_saving(folder / "none/a") ==
        "cannot write '" + (folder / "none/a").string() + "': No such file or directory");
  CHECK(error_of_saving(folder / "a/b").find("Not a directory") != std::string::npos);
  CHECK(error_of_saving(folder.path()).find("Is a directory") != std::string::npos);
  CHECK(error_of_saving("").find("No such file or directory") != std::string::npos);
  CHECK(error_of_saving(fs::path(std::string("a\0b", 3))).find("Invalid argument") !=
        std::string::npos);
  CHECK(read_file(folder / "a") == "old");
}

TEST_CASE("AtomicFile respects the permissions of the folder and of the old file",
          "[atomic_file]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "closed");
  write_file(folder / "closed/a", "old");
  ::chmod((folder / "closed/a").c_str(), 0666);
  ::chmod((folder / "closed").c_str(), 0555);
  fs::create_directory(folder / "open");
  write_file(folder / "open/read_only", "old");
  ::chmod((folder / "open").c_str(), 0777);
  ::chmod((folder / "open/read_only").c_str(), 0444);
  ::chmod(folder.path().c_str(), 0755);

  const int status = in_unprivileged_child([&] {
    for (const char* name : {"closed/a", "closed/new", "open/read_only"}) {
      require_error(error_of_saving(folder / name), "Permission denied");
    }
    save(folder / "open/new", "new");
  });
  CHECK(status == 0);
  CHECK(read_file(folder / "closed/a") == "old");
  CHECK(read_file(folder / "open/read_only") == "old");
  CHECK(read_file(folder / "open/new") == "new");
  ::chmod((folder / "closed").c_str(), 0755);
}

TEST_CASE("an existing file keeps its mode and a new file follows the umask", "[atomic_file]") {
  const TemporaryFolder folder;
  const mode_t umask_before = ::umask(027);
  for (const mode_t mode : {0600, 0644, 0777}) {
    write_file(folder / "old", "old");
    ::chmod((folder / "old").c_str(), mode);
    save(folder / "old", "new");
    CHECK(mode_of(folder / "old") == mode);
  }
  save(folder / "new", "new");
  CHECK(mode_of(folder / "new") == 0640);
  ::umask(umask_before);
}

TEST_CASE("AtomicFile keeps a symbolic link and replaces the file it leads to", "[atomic_file]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "store");
  fs::create_symlink("store/middle", folder / "link");
  fs::create_symlink("file", folder / "store/middle");

  save(folder / "link", "first");  // the link leads to no file yet
  CHECK(read_file(folder / "store/file") == "first");
  save(folder / "link", "second");
  CHECK(read_file(folder / "store/file") == "second");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(fs::is_symlink(folder / "store/middle"));

  fs::create_symlink("loop", folder / "loop");
  CHECK(error_of_saving(folder / "loop").find("Too many levels") != std::string::npos);
}

TEST_CASE("AtomicFile writes to a pipe directly", "[atomic_file]") {
  const TemporaryFolder folder;
  const fs::path path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const Descriptor reader(
      ::open(path.c_str(), O_RDWR | O_CLOEXEC));  // opens both ends, so no call blocks
  REQUIRE(reader.is_open());
  save(path, "through");
  char bytes[16] = {};
  CHECK(::read(reader.number(), bytes, sizeof bytes) == 7);
  CHECK(std::string(bytes) == "through");
  CHECK(fs::is_fifo(path));
  CHECK(folder.entries() == Names{"pipe"});
}

TEST_CASE("AtomicFile writes to a named descriptor, even if it is a regular file",
          "[atomic_file]") {
  const TemporaryFolder folder;
  Descriptor log(::open((folder / "log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::string name = "/dev/fd/" + std::to_string(log.number());
  REQUIRE(::write(log.number(), "before ", 7) == 7);
  save(name, "inside ");
  REQUIRE(::write(log.number(), "after", 5) == 5);
  CHECK(log.close() == 0);
  CHECK(read_file(folder / "log") == "before inside after");

  CHECK(error_of_saving(name).find("Bad file descriptor") != std::string::npos);
}

TEST_CASE("two writers of one path do not interfere, and the last commit wins", "[atomic_file]") {
  const TemporaryFolder folder;
  AtomicFile first(folder / "a");
  AtomicFile second(folder / "a");
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  CHECK(read_file(folder / "a") == "first");
  CHECK(folder.entries() == Names{"a"});
}

TEST_CASE("a change of the working folder does not move the target of AtomicFile",
          "[atomic_file]") {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  AtomicFile file("a");
  fs::current_path(before);
  file.write("x");
  file.commit();
  CHECK(read_file(folder / "a") == "x");
}

TEST_CASE("AtomicFile says why it cannot replace a mounted file", "[atomic_file]") {
  const TemporaryFolder folder;
  write_file(folder / "source", "old");
  write_file(folder / "mounted", "");
  const bool mounted = in_child_with_mount(folder / "source", folder / "mounted", [&] {
    const std::string error = error_of_saving(folder / "mounted");
    if (error.find("mounted': a mounted file or folder cannot be replaced") == std::string::npos) {
      throw std::runtime_error("another error: " + error);
    }
    if (folder.entries() != Names{"mounted", "source"}) throw std::runtime_error("a file is left");
  });
  if (!mounted) WARN("skipped: this process may not mount");
  CHECK(read_file(folder / "source") == "old");
}

TEST_CASE("AtomicFile accepts a name of 255 bytes", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  save(folder / name, "x");
  CHECK(folder.entries() == Names{name});
}
