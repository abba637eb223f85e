// SPDX-License-Identifier: MIT
// Runs of train_gpt that are interrupted and resumed.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "apps/compare_runs.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

namespace fs = std::filesystem;
using namespace mini::test;
using nlohmann::json;

namespace {

// Enough steps to interrupt, and dropout, so that every random generator matters.
const std::string kLong = "--steps 300 --eval-every 30 --dropout 0.2 --learning-rate 0.01";

/// Starts a run and sends `signal` after the first checkpoint.
Run interrupted_run(const TinyFolder& folder, const std::string& run, int signal,
                    const std::string& options = kLong) {
  Background program(folder.train(run, options));
  wait_for_steps(program, folder / run, 40);
  program.send(signal);
  return program.finish();
}

/// Kills a run `kills` times at random moments of all its phases, then lets it finish.
void run_with_kills(const TinyFolder& folder, const std::string& run_name, int kills,
                    unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < kills; ++i) {
    const bool begun = fs::exists(folder / run_name);
    Background program(begun ? folder.resume(run_name) : folder.train(run_name, kLong));
    // Kills after at most 25 steps, so that steps remain for the next process.
    const std::size_t limit = (begun ? lines_of_metrics(folder / run_name) : 0) + 25;
    const auto moment =
        std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 2'000'000);
    while (program.is_running() && std::chrono::steady_clock::now() < moment &&
           lines_of_metrics(folder / run_name) < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    program.send(SIGKILL);
    program.finish();
  }
  const bool begun = fs::exists(folder / run_name);
  const Run end = run(begun ? folder.resume(run_name) : folder.train(run_name, kLong));
  INFO(end.err);
  REQUIRE(end.status == 0);
}

}  // namespace

TEST_CASE("train_gpt resumes bit for bit after SIGTERM and SIGINT", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", kLong)).status == 0);

  for (const int signal : {SIGTERM, SIGINT}) {
    INFO("signal " << signal);
    const std::string name = signal == SIGTERM ? "terminated" : "interrupted";
    const Run stopped = interrupted_run(folder, name, signal);
    INFO(stopped.err);
    CHECK(stopped.status == 0);
    const int64_t step = saved_step(folder / name / "last");
    REQUIRE(step < 300);
    CHECK(step >= 40);
    CHECK_THAT(stopped.out,
               ContainsSubstring("stopped at step " + std::to_string(step) + " of 300"));
    CHECK_THAT(stopped.out,
               ContainsSubstring("to resume: train_gpt --resume " + (folder / name).string()));
    CHECK(folder.metrics(name).back()["step"] == step);

    const Run resumed = run(folder.resume(name));
    INFO(resumed.err);
    CHECK(resumed.status == 0);
    CHECK_THAT(resumed.err, ContainsSubstring("; from step " + std::to_string(step) + "\n"));
    check_same_runs(folder, name, "whole");
  }

  const Run nothing_left = run(folder.resume("whole"));
  CHECK(nothing_left.status == 0);
  CHECK_THAT(nothing_left.out, ContainsSubstring("done: step 300 of 300"));
  CHECK_THAT(nothing_left.err,
             ContainsSubstring("the run is complete; to train its model further, start a "
                               "new run with --init-from\n"));
  CHECK_THAT(run(folder.train("whole", kLong)).err, ContainsSubstring("train_gpt --resume "));
  CHECK(folder.metrics("whole").size() == 300);
}

TEST_CASE("resuming without part of the saved state changes the weights", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", kLong)).status == 0);
  REQUIRE(interrupted_run(folder, "run", SIGTERM).status == 0);
  REQUIRE(saved_step(folder / "run/last") < 300);
  const auto copy = [&](const std::string& name) {
    fs::copy(folder / "run", folder / name, fs::copy_options::recursive);
    return folder / name / "last";
  };
  const auto ends_as_the_whole = [&](const std::string& name) {
    const Run resumed = run(folder.resume(name));
    INFO(resumed.err);
    REQUIRE(resumed.status == 0);
    return same(tensors_of(folder / name / "last", "model"),
                tensors_of(folder / "whole/last", "model"));
  };
  copy("control");
  CHECK(ends_as_the_whole("control"));

  const fs::path optimizer = copy("no_optimizer") / "optimizer.safetensors";
  const auto file = mini::load_safetensors(optimizer);
  Tensors fresh;
  for (const auto& item : file.tensors) {
    if (item.key().ends_with(".step")) fresh.insert(item.key(), at::zeros_like(item.value()));
  }
  mini::save_safetensors(optimizer, fresh, file.metadata);
  CHECK_FALSE(ends_as_the_whole("no_optimizer"));

  for (const std::string generator : {"dropout", "windows"}) {
    INFO(generator);
    const fs::path path = copy("no_" + generator) / "generators.safetensors";
    auto saved = mini::load_safetensors(path);
    const std::string other = generator == "dropout" ? "windows" : "dropout";
    saved.tensors[generator] = saved.tensors[other];
    mini::save_safetensors(path, saved.tensors, saved.metadata);
    CHECK_FALSE(ends_as_the_whole("no_" + generator));
  }
}

TEST_CASE("train_gpt resumes bit for bit after SIGKILL", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", kLong)).status == 0);
  run_with_kills(folder, "killed", 5, 1);
  check_same_runs(folder, "killed", "whole");
}

TEST_CASE("train_gpt resumes bit for bit after 50 SIGKILLs", "[app][train_gpt][.slow]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", kLong)).status == 0);
  for (unsigned seed = 0; seed < 5; ++seed) {
    INFO("seed " << seed);
    const std::string name = "killed" + std::to_string(seed);
    run_with_kills(folder, name, 10, seed);
    check_same_runs(folder, name, "whole");
  }
}

TEST_CASE("a full disk ends train_gpt and keeps the last checkpoint", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", kLong)).status == 0);
  REQUIRE(interrupted_run(folder, "run", SIGTERM).status == 0);
  const int64_t step = saved_step(folder / "run/last");
  REQUIRE(step < 270);  // at least one more evaluation follows
  const auto blocks = (fs::file_size(folder / "run/last/optimizer.safetensors") - 1) / 512;

  // A limit on the file size, in blocks of 512 bytes, simulates a full disk.
  const Run full = run("train_gpt --help >/dev/null; ulimit -f " + std::to_string(blocks) +
                       "; trap '' XFSZ; '" MINI_APPS "'/" + folder.resume("run"));
  CHECK(full.status == 1);
  CHECK_THAT(full.err, ContainsSubstring("train_gpt: "));
  CHECK_THAT(full.err, ContainsSubstring("cannot write"));
  CHECK_THAT(full.err, ContainsSubstring("optimizer.safetensors': File too large"));
  CHECK(saved_step(folder / "run/last") == step);
  CHECK(files_of(folder / "run").count(".last.new") == 0);

  REQUIRE(run(folder.resume("run")).status == 0);
  check_same_runs(folder, "run", "whole");
}

TEST_CASE("train_gpt resumes from best if there is no last checkpoint", "[app][train_gpt]") {
  // A kill after the first save of `best` leaves such a folder.
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", "--steps 6 --eval-every 3 --dropout 0.2")).status == 0);
  fs::copy(folder / "whole", folder / "run", fs::copy_options::recursive);
  fs::remove_all(folder / "run/last");
  const int64_t step = saved_step(folder / "run/best");
  const Run resumed = run(folder.resume("run"));
  INFO(resumed.err);
  CHECK(resumed.status == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("; from step " + std::to_string(step) + "\n"));
  check_same_runs(folder, "run", "whole");
}

TEST_CASE("train_gpt --resume refuses other settings and damaged files", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 6 --eval-every 3")).status == 0);
  const Run other = run(folder.resume("run") + " --n-layer 6 --dropout 0.5 --n-embd 16 --bias");
  CHECK(other.status == 1);
  CHECK(is_one_line(other.err));
  CHECK_THAT(other.err,
             ContainsSubstring("has another configuration: --n-layer is 2 there, 6 here; "
                               "--dropout is 0.0 there, 0.5 here; --bias is false there, "
                               "true here"));
  CHECK_THAT(run(folder.resume("run") + " --data other.txt").err,
             ContainsSubstring("--data is \"" + (folder / "text.txt").string() + "\" there"));
  CHECK(run(folder.resume("run") + " --n-layer 2 --threads 2 --data " + folder.path_of("text.txt"))
            .status == 0);

  const auto copy = [&](const std::string& name) {
    fs::copy(folder / "run", folder / name, fs::copy_options::recursive);
    return folder / name;
  };
  {  // a checkpoint of another run
    REQUIRE(run(folder.train("other", "--steps 6 --n-layer 3")).status == 0);
    fs::remove_all(copy("mixed") / "last");
    fs::copy(folder / "other/last", folder / "mixed/last");
    CHECK_THAT(run(folder.resume("mixed")).err,
               ContainsSubstring("the configuration differs: eval_every: expected 3, got 250; "
                                 "n_layer: expected 2, got 3"));
  }
  {  // a truncated checkpoint
    const fs::path path = copy("cut") / "last/state.json";
    const std::string state = read_file(path);
    write_file(path, state.substr(0, state.size() / 2));
    const Run cut = run(folder.resume("cut"));
    CHECK(cut.status == 1);
    CHECK(is_one_line(cut.err));
    CHECK_THAT(cut.err, ContainsSubstring("last/state.json' is not JSON"));
  }
  {  // a checkpoint without some tensors: one line names all of them
    const fs::path path = copy("holes") / "last/model.safetensors";
    torch::OrderedDict<std::string, at::Tensor> kept;
    const auto file = mini::load_safetensors(path);
    for (const auto& item : file.tensors) {
      if (!item.key().ends_with("ln_1.weight")) kept.insert(item.key(), item.value());
    }
    mini::save_safetensors(path, kept, file.metadata);
    const Run holes = run(folder.resume("holes"));
    CHECK(holes.status == 1);
    CHECK(is_one_line(holes.err));
    CHECK_THAT(holes.err, ContainsSubstring("missing: transformer.h.0.ln_1.weight") &&
                              ContainsSubstring("; missing: transformer.h.1.ln_1.weight"));
  }
  {  // a damaged configuration
    const fs::path path = copy("damaged") / "config.json";
    const std::string config = read_file(path);
    const auto error = [&](const std::string& from, const std::string& to) {
      std::string damaged = config;
      damaged.replace(damaged.find(from), from.size(), to);
      write_file(path, damaged);
      const Run refused = run(folder.resume("damaged"));
      CHECK(refused.status == 1);
      CHECK_THAT(refused.err, ContainsSubstring("damaged/config.json': "));
      return refused.err;
    };
    CHECK_THAT(error("\"n_layer\": 2", "\"n_layer\": \"2\""),
               ContainsSubstring("n_layer: expected a whole number, got \"2\""));
    CHECK_THAT(error("\"n_layer\"", "\"n_layers\""),
               ContainsSubstring("n_layer: expected a value"));
    CHECK_THAT(
        error("\"eval_every\": 3", "\"eval_every\": 0"),
        ContainsSubstring("eval_every: expected a whole number from 1 to 2^31 - 1, got '0'"));
    CHECK_THAT(error("\"dropout\": 0.0", "\"dropout\": 1.5"),
               ContainsSubstring("dropout: expected a number from 0 to 1, got '1.5'"));
    CHECK_THAT(error("\"seed\"", "\"more\": 1, \"seed\""),
               ContainsSubstring("expected the 25 settings of a run, got 26"));
  }
  {  // damaged measurements: none of them is removed
    const fs::path path = copy("scratched") / "metrics.jsonl";
    for (const std::string damage : {"a message\n", "{\"tokens\": 32}\n"}) {
      const std::string damaged = damage + read_file(folder / "run/metrics.jsonl");
      write_file(path, damaged);
      const Run refused = run(folder.resume("scratched"));
      CHECK(refused.status == 1);
      CHECK(is_one_line(refused.err));
      CHECK_THAT(refused.err, ContainsSubstring("scratched/metrics.jsonl', line 1: "));
      CHECK(read_file(path) == damaged);
    }
  }
  const Run none = run(folder.resume("none"));
  CHECK(none.status == 1);
  CHECK_THAT(none.err, ContainsSubstring("none' is not the folder of a training run"));
}

TEST_CASE("train_gpt writes no message into a data file if standard streams are closed",
          "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("whole", "--steps 4 --eval-every 2")).status == 0);
  // Without standard output the last line cannot be written, which is an error after the training.
  const std::vector<std::pair<std::string, int>> cases = {
      {"<&-", 0}, {"2>&-", 0}, {"<&- 2>&-", 0}, {">&- 2>&-", 1}, {"<&- >&- 2>&-", 1}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [closed, status] = cases[i];
    INFO(closed);
    const std::string name = "run" + std::to_string(i);
    const Run done = run(folder.train(name, "--steps 4 --eval-every 2") + " " + closed);
    CHECK(done.status == status);
    check_same_runs(folder, name, "whole");
  }
}

TEST_CASE("only one train_gpt at a time trains in a folder", "[app][train_gpt]") {
  const TinyFolder folder;
  Background first(folder.train("run", "--steps 1000000"));
  wait_for_steps(first, folder / "run", 1);
  const Run second = run(folder.resume("run"));
  CHECK(second.status == 1);
  CHECK_THAT(second.err,
             ContainsSubstring("another train_gpt works in '" + (folder / "run").string() + "'"));
  first.send(SIGTERM);
  CHECK(first.finish().status == 0);
}

TEST_CASE("if two train_gpt start in the same new folder at once, one is refused",
          "[app][train_gpt]") {
  const TinyFolder folder;
  const std::string options = "--steps 4 --eval-every 2 --dropout 0.2";
  REQUIRE(run(folder.train("whole", options)).status == 0);
  for (int i = 0; i < 5; ++i) {
    const std::string name = "run" + std::to_string(i);
    Background first(folder.train(name, options));
    Background second(folder.train(name, options));
    const Run a = first.finish(), b = second.finish();
    INFO(a.err << b.err);
    REQUIRE(a.status + b.status == 1);
    CHECK_THAT(a.status == 1 ? a.err : b.err,
               ContainsSubstring("another process is writing it") ||
                   ContainsSubstring("expected a new folder, got '"));
    check_same_runs(folder, name, "whole");
  }
}

TEST_CASE("train_gpt ends with an error if its folder is removed", "[app][train_gpt]") {
  const TinyFolder folder;
  Background program(folder.train("run", "--steps 1000000 --eval-every 20"));
  wait_for_steps(program, folder / "run", 25);
  fs::rename(folder / "run", folder / "moved");
  const Run ended = program.finish();
  CHECK(ended.status == 1);
  CHECK_THAT(ended.err, ContainsSubstring("train_gpt: save_checkpoint: cannot write '" +
                                          (folder / "run").string()));
  CHECK_THAT(ended.err, ContainsSubstring("': No such file or directory\n"));
  CHECK_FALSE(fs::exists(folder / "run"));
}
