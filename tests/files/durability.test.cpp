// SPDX-License-Identifier: MIT
// What AtomicFile and AtomicFolder flush to the disk, and in which order. After a power cut a
// reader finds the complete old state or the complete new state only in this order. Also, writes
// that signals interrupt.
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <stdexcept>
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
using mini::test::in_child;
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

TEST_CASE("AtomicFile continues a write that a signal interrupts", "[atomic_file]") {
  constexpr std::size_t kSize = 1 << 20;
  // In a child, since the timer and the handler belong to the whole process.
  const int status = in_child([] {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const pid_t reader = ::fork();
    if (reader == 0) {
      ::close(ends[1]);
      ::usleep(200'000);  // the pipe is full, and the writer waits
      std::vector<char> buffer(kSize);
      std::size_t received = 0;
      for (ssize_t size; (size = ::read(ends[0], buffer.data(), kSize)) > 0;) {
        received += static_cast<std::size_t>(size);
      }
      ::_exit(received == kSize ? 0 : 1);
    }
    struct sigaction interrupt = {};
    interrupt.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &interrupt, nullptr);
    const itimerval every_10_ms = {{0, 10'000}, {0, 10'000}};
    ::setitimer(ITIMER_REAL, &every_10_ms, nullptr);
    AtomicFile file("/proc/self/fd/" + std::to_string(ends[1]));
    file.write(std::string(kSize, 'x'));
    file.commit();
    const itimerval never = {};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::close(ends[1]);
    int read_all = 1;
    ::waitpid(reader, &read_all, 0);
    if (read_all != 0) throw std::runtime_error("bytes are missing");
  });
  CHECK(status == 0);
}
