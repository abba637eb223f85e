// SPDX-License-Identifier: MIT
// Saves of a checkpoint that fail, and the old checkpoint after each.
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "mini/checkpoint.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"
#include "support/training_run.h"

namespace fs = std::filesystem;
using mini::test::check_holds;
using mini::test::ContainsSubstring;
using mini::test::error_of;
using mini::test::in_child;
using mini::test::kCheckpointFiles;
using mini::test::read_file;
using mini::test::require_error;
using mini::test::TemporaryFolder;
using mini::test::TrainingRun;
using mini::test::write_file;

namespace {

using Names = std::set<std::string>;

/// A run whose state.json is the largest file of its checkpoint. The other files are written in the
/// order of their sizes, so a limit just below the size of any file stops the write of that file.
TrainingRun run_with_long_config(int64_t step) {
  TrainingRun run(step);
  run.state.config["padding"] = std::string(8192, 'x');
  return run;
}

}  // namespace

TEST_CASE("save_checkpoint refuses numbers that state.json cannot hold", "[checkpoint]") {
  const TemporaryFolder folder;
  for (const double wrong : {double{NAN}, HUGE_VAL, -HUGE_VAL}) {
    TrainingRun run(2);
    run.state.seconds = wrong;
    CHECK_THAT(error_of([&] { run.save(folder / "a"); }),
               ContainsSubstring("save_checkpoint: expected finite seconds, got "));
  }
  for (const double wrong : {double{NAN}, -HUGE_VAL}) {
    TrainingRun run(2);
    run.state.best_val_loss = wrong;
    CHECK_THAT(error_of([&] { run.save(folder / "a"); }),
               ContainsSubstring("save_checkpoint: expected a best_val_loss that is a number"));
  }
  CHECK(folder.entries().empty());
}

TEST_CASE("an exception during a save leaves the old checkpoint valid", "[checkpoint]") {
  const TemporaryFolder folder;
  const TrainingRun old(2);
  old.save(folder / "last");
  TrainingRun next(3);
  at::Tensor third = next.net->named_parameters()["1.weight"];
  third.set_data(third.detach().clone());
  third.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "the third tensor fails");
  CHECK_THAT(error_of([&] { next.save(folder / "last"); }),
             ContainsSubstring("the third tensor fails"));
  check_holds(folder / "last", old);
  CHECK(folder.entries() == Names{"last"});
}

TEST_CASE("a kill while any file is written leaves the old checkpoint valid", "[checkpoint]") {
  const TemporaryFolder folder;
  const TrainingRun old = run_with_long_config(2), next = run_with_long_config(3);
  old.save(folder / "last");
  std::vector<rlim_t> limits = {0, 100};
  for (const std::string& name : kCheckpointFiles) {
    limits.push_back(fs::file_size(folder / "last" / name) - 1);
  }
  for (const rlim_t limit : limits) {
    INFO(limit);
    const int status = in_child([&] {
      ::signal(SIGXFSZ, [](int) { ::raise(SIGKILL); });  // raised by a write past the limit
      const rlimit file_size = {limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &file_size);
      next.save(folder / "last");
    });
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
    CHECK(folder.entries() == Names{"last", ".last.new"});
    check_holds(folder / "last", old);
  }
  next.save(folder / "last");
  check_holds(folder / "last", next);
  CHECK(folder.entries() == Names{"last"});
}

TEST_CASE("a full disk while any file is written leaves the old checkpoint valid", "[checkpoint]") {
  const TemporaryFolder folder;
  const TrainingRun old = run_with_long_config(2), next = run_with_long_config(3);
  old.save(folder / "last");
  for (const std::string& name : kCheckpointFiles) {
    INFO(name);
    const rlim_t limit = fs::file_size(folder / "last" / name) - 1;
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit file_size = {limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &file_size);
      require_error(error_of([&] { next.save(folder / "last"); }), name + "': File too large");
    });
    CHECK(status == 0);
    CHECK(folder.entries() == Names{"last"});
    check_holds(folder / "last", old);
  }
}

TEST_CASE("save_checkpoint refuses a folder of other files and a missing parent folder",
          "[checkpoint]") {
  const TemporaryFolder folder;
  write_file(folder / "thesis.txt", "years of work");
  CHECK_THAT(error_of([&] { TrainingRun(1).save(folder.path()); }),
             ContainsSubstring("save_checkpoint: cannot replace"));
  CHECK(read_file(folder / "thesis.txt") == "years of work");
  CHECK_THAT(error_of([&] { TrainingRun(1).save(folder / "none/last"); }),
             ContainsSubstring("save_checkpoint: cannot write '" + (folder / "none/last").string() +
                               "': No such file"));
}
