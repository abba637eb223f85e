// SPDX-License-Identifier: MIT
// Runs of train_gpt in which each call on a file fails once, or is the last one before a kill.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/compare_runs.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

namespace fs = std::filesystem;
using namespace mini::test;

namespace {

/// Two evaluations, each better than the one before, so each saves `best` and `last`. One layer and
/// the smallest sizes keep the number of calls small.
const std::string kShort =
    "--steps 2 --eval-every 1 --dropout 0.2 --n-layer 1 --n-head 1 --n-embd 4 --block-size 4";

/// While it exists, programs that are started meet the fault at call number `at` on the files of
/// `folder`.
class Fault {
 public:
  Fault(const TinyFolder& folder, std::size_t at, const std::string& fault,
        const std::string& log = "") {
    set("FAULT_FOLDER", folder.path());
    set("FAULT_AT", std::to_string(at));
    set("FAULT", fault);
    if (!log.empty()) set("FAULT_LOG", log);
    set("LD_PRELOAD", MINI_INJECT_FAULT);
  }
  ~Fault() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

 private:
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  std::vector<std::string> names_;
};

/// The calls of a whole run on its files, "write /path", in order.
std::vector<std::string> calls_of_run(const TinyFolder& folder) {
  const TemporaryFolder log;
  {
    const Fault none(folder, 0, "", log / "calls");
    REQUIRE(run(folder.train("whole", kShort)).status == 0);
  }
  std::vector<std::string> calls;
  std::istringstream lines(read_file(log / "calls"));
  for (std::string line; std::getline(lines, line);) calls.push_back(line);
  REQUIRE(calls.size() > 100);
  return calls;
}

/// Runs the command with at most `kilobytes` of address space.
Run run_in(long kilobytes, const std::string& command) {
  return run("train_gpt --help >/dev/null; ulimit -v " + std::to_string(kilobytes) +
             "; '" MINI_APPS "'/" + command);
}

/// Finishes a run that a fault interrupted, as its user would.
void finish(const TinyFolder& folder, const std::string& name) {
  const bool begun = fs::exists(folder / name);
  const Run end = run(begun ? folder.resume(name) : folder.train(name, kShort));
  INFO(end.err);
  REQUIRE(end.status == 0);
}

std::size_t count_lines(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with(start) ? 1 : 0;
  return count;
}

/// Whether the run must fail if this call does. A failed close() of a folder, and a failed removal
/// of a temporary file, lose nothing.
bool must_fail(const std::string& call) {
  return call.starts_with("write ") || call.starts_with("fsync ") || call.starts_with("rename ") ||
         call.starts_with("mkdir ") || call.starts_with("ftruncate ") ||
         (call.starts_with("close ") && call.ends_with(".tmp"));
}

}  // namespace

TEST_CASE("train_gpt resumes bit for bit after a kill at any call on its files", "[.faults]") {
  const TinyFolder folder;
  const std::vector<std::string> calls = calls_of_run(folder);
  for (const std::string kind : {"kill", "tear"}) {
    for (std::size_t at = 1; at <= calls.size(); ++at) {
      const std::string& call = calls[at - 1];
      if (kind == "tear" && !call.starts_with("write ")) continue;
      INFO(kind << " at call " << at << ": " << call);
      {
        const Fault fault(folder, at, kind);
        CHECK(run(folder.train("run", kShort)).status != 0);
      }
      finish(folder, "run");
      check_same_runs(folder, "run", "whole");
      std::set<std::string> files = files_of(folder / "run");
      files.erase(".last.new");  // the next save would remove it, and a finished run has none
      CHECK(files == files_of(folder / "whole"));
      fs::remove_all(folder / "run");
    }
  }
}

TEST_CASE("train_gpt resumes bit for bit after an error of any call on its files", "[.faults]") {
  const TinyFolder folder;
  const std::vector<std::string> calls = calls_of_run(folder);
  const std::vector<int> errors = {ENOSPC, EIO, EROFS, EACCES, EDQUOT};
  for (std::size_t at = 1; at <= calls.size(); ++at) {
    const int error = errors[at % errors.size()];
    const std::string& call = calls[at - 1];
    INFO("error " << error << " of call " << at << ": " << call);
    {
      const Fault fault(folder, at, std::to_string(error));
      const Run failed = run(folder.train("run", kShort));
      INFO(failed.err);
      CHECK((failed.status == 1 || (failed.status == 0 && !must_fail(call))));
      CHECK(count_lines(failed.err, "train_gpt: ") == (failed.status == 0 ? 0 : 1));
      if (failed.status == 1) CHECK(count_lines(failed.err, "") <= 4);  // the notes of the steps
    }
    finish(folder, "run");
    check_same_runs(folder, "run", "whole");
    fs::remove_all(folder / "run");
  }
}

TEST_CASE("train_gpt ends with an error and loses nothing if memory is refused", "[.faults]") {
  const TinyFolder folder;
  const std::string options =
      "--steps 2 --eval-every 1 --n-layer 2 --n-embd 256 --block-size 64 --batch-size 8";
  REQUIRE(run(folder.train("whole", options)).status == 0);
  long limit = 300'000;  // below the limit at which the program starts, LibTorch aborts it
  while (run_in(limit, "train_gpt --help").status != 0) limit += 2'000;
  int refused = 0;
  for (int status = 1; status != 0; limit += 8'000) {
    INFO("limit " << limit << " kB");
    const Run limited = run_in(limit, folder.train("run", options));
    INFO(limited.err);
    status = limited.status;
    REQUIRE((status == 0 || status == 1));
    refused += status;
    if (status == 1) {
      CHECK(count_lines(limited.err, "train_gpt: ") == 1);
      CHECK_THAT(limited.err, ContainsSubstring("not enough memory") ||
                                  ContainsSubstring("Cannot allocate memory"));
    }
    const bool begun = fs::exists(folder / "run");
    REQUIRE(run(begun ? folder.resume("run") : folder.train("run", options)).status == 0);
    check_same_runs(folder, "run", "whole");
    fs::remove_all(folder / "run");
  }
  CHECK(refused >= 3);
}
