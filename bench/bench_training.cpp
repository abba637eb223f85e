// SPDX-License-Identifier: MIT
// Training and generation beside the same GPT in PyTorch, which a Python program runs in turns with
// this one. Losses and tokens are compared before anything is timed.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "common/app.h"
#include "common/keep_memory.h"
#include "measure.h"
#include "mini/data_parallel.h"
#include "mini/generate.h"
#include "mini/gpt.h"
#include "mini/optimizer.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "subprocess.h"

namespace mini::app {
namespace {

struct Options {
  std::string python = "python3";
  std::string filter;
  std::vector<int> threads = {1, 2};
  int64_t turns = 21;
  bool default_malloc = false;
};

constexpr int64_t kVocabSize = 65;
constexpr double kLearningRate = 1e-3;
constexpr int64_t kBatches = 8;  // that training goes through again and again
constexpr int64_t kStepsOfTurn = 8;
constexpr int64_t kNewTokens = 255;

struct Case {
  std::string mode;  // train_eager, train_compiled, generate, generate_cached
  int64_t batch;

  bool trains() const { return mode.starts_with("train"); }
  bool compiled() const { return mode == "train_compiled"; }
  bool cached() const { return mode == "generate_cached"; }
  int64_t block_size() const { return trains() ? 64 : 256; }
  int64_t tokens_of_turn() const {
    return trains() ? kStepsOfTurn * batch * block_size() : kNewTokens;
  }
};

const std::vector<Case> kCases = {{"train_eager", 12},    {"train_eager", 32},
                                  {"train_compiled", 12}, {"train_compiled", 32},
                                  {"generate", 1},        {"generate_cached", 1}};

struct Row {
  Case what;
  int threads;
  double ours_tokens_per_s, peer_tokens_per_s, ratio;  // medians
  double spread;  // of ours: half the distance between its quartiles, relative to the median
};

// What both sides work on: the same weights, the same batches.
class Ours {
 public:
  explicit Ours(const Case& what)
      : model_(mini::GPTOptions(kVocabSize).block_size(what.block_size()).seed(1337)),
        adamw_(kLearningRate),
        optimizer_(model_->parameters(), adamw_) {
    torch::manual_seed(42);
    idx_ = torch::randint(kVocabSize, {kBatches, what.batch, what.block_size()}, at::kLong);
    targets_ = torch::randint(kVocabSize, idx_.sizes(), at::kLong);
  }

  void save(const std::string& path) const {
    auto tensors = mini::state_dict(*model_, mini::kGPTAliases);
    tensors.insert("idx", idx_);
    tensors.insert("targets", targets_);
    mini::save_safetensors(path, tensors);
  }

  Json sizes() const {
    const mini::GPTOptions& o = model_->options;
    return {{"vocab_size", o.vocab_size()},
            {"block_size", o.block_size()},
            {"n_layer", o.n_layer()},
            {"n_head", o.n_head()},
            {"n_embd", o.n_embd()}};
  }

  std::vector<double> train(int64_t steps) {
    std::vector<at::Tensor> losses;
    for (int64_t step = 0; step < steps; ++step) {
      const at::Tensor idx = idx_[step % kBatches], targets = targets_[step % kBatches];  // (B, T)
      const int64_t batch_size = idx.size(0);
      const auto loss_of = [&](int64_t begin, int64_t end) {
        const double share = static_cast<double>(end - begin) / static_cast<double>(batch_size);
        return model_->loss(idx.slice(0, begin, end), targets.slice(0, begin, end)) * share;
      };
      optimizer_.zero_grad();
      losses.push_back(mini::data_parallel_backward(model_->parameters(), batch_size, loss_of));
      optimizer_.step();
    }
    return numbers(at::stack(losses));
  }

  std::vector<int64_t> generate() {
    const at::Tensor prompt = idx_.slice(0, 0, 1).select(1, 0).slice(1, 0, 1);  // (1, 1)
    const at::Tensor tokens =
        mini::generate(model_, prompt, {.new_tokens = kNewTokens, .temperature = 0.0});
    return {tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel()};
  }

 private:
  mini::GPT model_;
  torch::optim::AdamWOptions adamw_;
  mini::AdamW optimizer_;
  at::Tensor idx_, targets_;  // (kBatches, B, T)
};

// A folder of this run's own, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "bench_training.XXXXXX").string();
    TORCH_CHECK(mkdtemp(path.data()) != nullptr, "cannot make the folder ", path);
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
                   {{"command", "train"}, {"steps", kStepsOfTurn}, {"compiled", what.compiled()}})
             : ask(peer, {{"command", "generate"},
                          {"new_tokens", kNewTokens},
                          {"cached", what.cached()}});
}

// Both sides make their first turn from the same weights and have to come to the same.
void verify(const Case& what, Ours& ours, Subprocess& peer) {
  const Json theirs = peer_turn(peer, what);
  if (!what.trains()) {
    TORCH_CHECK(ours.generate() == theirs.at("tokens").get<std::vector<int64_t>>(),
                "bench_training: ", what.mode,
                ": the two programs generate different tokens; "
                "nothing is timed");
    return;
  }
  const std::vector<double> losses = ours.train(kStepsOfTurn);
  for (size_t step = 0; step < losses.size(); ++step) {
    const double expected = theirs.at("losses")[step].get<double>();
    TORCH_CHECK(std::abs(losses[step] - expected) <= 1e-3, "bench_training: ", what.mode, ": loss ",
                losses[step], " at step ", step, ", the peer's is ", expected,
                "; nothing is timed");
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
        [&] { what.trains() ? (void)ours.train(kStepsOfTurn) : (void)ours.generate(); }));
    peer_s.push_back(peer_turn(peer, what).at("seconds").get<double>());
    ratios.push_back(peer_s.back() / own_s.back());
  }
  const auto tokens = static_cast<double>(what.tokens_of_turn());
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
    if (what.mode.find(options.filter) == std::string::npos) continue;
    for (const int threads : options.threads) {
      fmt::print(stderr, "{} batch {} {} thread(s)\n", what.mode, what.batch, threads);
      rows.push_back(measure(options, what, threads, peer, folder / "weights.safetensors"));
    }
  }
  if (rows.empty()) {
    throw UsageError(fmt::format("--filter: no mode's name holds '{}'", options.filter));
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
         "\nratio: time of the peer, PyTorch in Python, over ours: the median over turns. "
         "Training: T "
         "64, a\nstep of AdamW and all before it; generation: 255 tokens from one, greedy, against "
         "no cache\n(generate) and a cache (generate_cached).\n";
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
          "Training and generation beside the same GPT in PyTorch, compared and timed.");
  app.add_option("--python", options.python, "A Python with torch and safetensors (python3)")
      ->check(file_name())
      ->type_name("PATH");
  app.add_option("--filter", options.filter, "Only modes whose name holds this text");
  add_list(app, "--threads", options.threads, "Numbers of threads, separated by commas (1,2)",
           thread_count());
  app.add_option("--turns", options.turns, "Turns of each side (21)")
      ->transform(positive_integer());
  app.add_flag("--default-malloc", options.default_malloc, "Leave our allocator as it comes");
  return app.run(argc, argv, [&] {
    const std::string cpu = cpu_name();
    const std::vector<Row> rows = run(options);
    return Report{to_text(cpu, rows), to_json(cpu, rows), to_table(rows)};
  });
}
