// SPDX-License-Identifier: MIT
// Times training and generation against the same GPT in PyTorch, which a Python program runs. Both
// sides are measured alternately. Losses and tokens are compared before the first measurement.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "bench_options.h"
#include "common/app.h"
#include "common/keep_memory.h"
#include "measure.h"
#include "subprocess.h"
#include "training_cases.h"

namespace mini::app {
namespace {

struct Options : BenchOptions {
  std::string python = "python3";
  int64_t turns = 21;
};

struct Row {
  Case what;
  int threads;
  double ours_tokens_per_s, peer_tokens_per_s, ratio;  // medians
  double spread;  // of ours: half the distance between the quartiles, relative to the median
};

// A new folder, which the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "bench_training.XXXXXX").string();
    TORCH_CHECK(mkdtemp(path.data()) != nullptr, "bench_training: cannot create the folder ", path);
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

Json ask(Subprocess& peer, const Json& request) { return Json::parse(peer.ask(request.dump())); }

Json peer_turn(Subprocess& peer, const Case& what) {
  return what.trains()
             ? ask(peer,
                   {{"command", "train"}, {"steps", kStepsPerTurn}, {"compiled", what.compiled()}})
             : ask(peer, {{"command", "generate"},
                          {"new_tokens", kNewTokens},
                          {"cached", what.cached()}});
}

// Runs the first turn of both sides, from the same weights. Throws if the results differ.
void verify(const Case& what, Ours& ours, Subprocess& peer) {
  const Json theirs = peer_turn(peer, what);
  if (!what.trains()) {
    TORCH_CHECK(ours.generate() == theirs.at("tokens").get<std::vector<int64_t>>(),
                "bench_training: expected the same tokens from both sides in ", what.mode,
                ", got different ones; no time was measured");
    return;
  }
  const std::vector<double> losses = ours.train(kStepsPerTurn);
  for (size_t step = 0; step < losses.size(); ++step) {
    const double expected = theirs.at("losses")[step].get<double>();
    TORCH_CHECK(std::abs(losses[step] - expected) <= 1e-3,
                "bench_training: expected the same loss from both sides in ", what.mode,
                " at step ", step, ", got ", losses[step], " from ours and ", expected,
                " from the peer; no time was measured");
  }
}

Row measure(const Options& options, const Case& what, int threads, Subprocess& peer,
            const std::string& path) {
  at::set_num_threads(threads);
  Ours ours(what);
  ours.save(path);
  Json load = {
      {"command", "load"}, {"path", path}, {"threads", threads}, {"learning_rate", kLearningRate}};
  load.update(ours.sizes());
  ask(peer, load);
  verify(what, ours, peer);

  std::vector<double> own_s, peer_s, ratios;
  for (int64_t turn = 0; turn < options.turns; ++turn) {
    own_s.push_back(seconds_of(
        [&] { what.trains() ? (void)ours.train(kStepsPerTurn) : (void)ours.generate(); }));
    peer_s.push_back(peer_turn(peer, what).at("seconds").get<double>());
    ratios.push_back(peer_s.back() / own_s.back());
  }
  const auto tokens = static_cast<double>(what.tokens_per_turn());
  const double median = quantile(own_s, 0.5);
  return {what,
          threads,
          tokens / median,
          tokens / quantile(peer_s, 0.5),
          quantile(ratios, 0.5),
          relative_spread(own_s)};
}

std::vector<Row> run(const Options& options) {
  if (!options.default_malloc) {
    keep_freed_memory();  // as train_gpt does
  }
  Subprocess peer({options.python, BENCH_TRAINING_PEER});
  const TemporaryFolder folder;
  std::vector<Row> rows;
  for (const Case& what : kCases) {
    if (!options.selects(what.mode)) continue;
    for (const int threads : options.threads) {
      fmt::print(stderr, "{} batch {} {} thread(s)\n", what.mode, what.batch, threads);
      rows.push_back(measure(options, what, threads, peer, folder / "weights.safetensors"));
    }
  }
  if (rows.empty()) {
    throw UsageError(fmt::format("--filter: expected a part of a mode, such as 'train', got '{}'",
                                 options.filter));
  }
  return rows;
}

std::string to_text(const std::string& cpu, const std::vector<Row>& rows) {
  std::string text =
      fmt::format("{}\n\n{:<16} {:>5} {:>7} {:>16} {:>6} {:>16} {:>6}\n", cpu, "mode", "batch",
                  "threads", "ours tokens/s", "+-", "peer tokens/s", "ratio");
  for (const Row& row : rows) {
    text += fmt::format("{:<16} {:>5} {:>7} {:>16.0f} {:>5.1f}% {:>16.0f} {:>6.2f}\n",
                        row.what.mode, row.what.batch, row.threads, row.ours_tokens_per_s,
                        row.spread * 100, row.peer_tokens_per_s, row.ratio);
  }
  return text +
         "\nBoth sides were measured alternately.\n"
         "+-: half the distance between the quartiles of our times, relative to the median.\n"
         "ratio: the time of the peer, PyTorch in Python, / ours, median of the pairs.\n"
         "Training: T = 64, whole steps of AdamW. Generation: 255 tokens from one, greedy,\n"
         "against PyTorch without a cache (generate) and with a cache (generate_cached).\n";
}

Json to_json(const std::string& cpu, const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"mode", row.what.mode},
                    {"batch", row.what.batch},
                    {"threads", row.threads},
                    {"ours_tokens_per_s", row.ours_tokens_per_s},
                    {"peer_tokens_per_s", row.peer_tokens_per_s},
                    {"spread", row.spread},
                    {"ratio", row.ratio}});
  }
  return {{"cpu", cpu}, {"rows", list}};
}

Table to_table(const std::vector<Row>& rows) {
  Table table{
      {"mode", "batch", "threads", "ours_tokens_per_s", "peer_tokens_per_s", "spread", "ratio"},
      {}};
  for (const Row& row : rows) {
    table.rows.push_back({row.what.mode, row.what.batch, row.threads, row.ours_tokens_per_s,
                          row.peer_tokens_per_s, row.spread, row.ratio});
  }
  return table;
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("bench_training",
          "Times training and generation against the same GPT in PyTorch. Verifies that losses and "
          "tokens agree first.");
  add_bench_options(app, options, "modes");
  app.add_option("--python", options.python, "A Python with torch and safetensors")
      ->check(file_name())
      ->type_name("PATH")
      ->capture_default_str();
  app.add_option("--turns", options.turns, "Measurements of each side")
      ->transform(positive_integer())
      ->capture_default_str();
  return app.run(argc, argv, [&] {
    const std::string cpu = cpu_name();
    const std::vector<Row> rows = run(options);
    return Report{to_text(cpu, rows), to_json(cpu, rows), to_table(rows)};
  });
}
