// SPDX-License-Identifier: MIT
#include "mini/checkpoint.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "mini/optimizer.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"

namespace fs = std::filesystem;
using mini::load_checkpoint;
using mini::save_checkpoint;
using mini::TrainingState;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::in_child;
using mini::test::read_file;
using mini::test::require_error;
using mini::test::TemporaryFolder;
using mini::test::write_file;
using torch::optim::AdamWOptions;

namespace {

using Names = std::set<std::string>;
using Config = std::map<std::string, std::string>;

const Config kConfig = {{"n_layer", "4"}, {"dropout", "0.1"}};

/// A model in the middle of its training.
struct Run {
  explicit Run(int64_t step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    net = torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
    optimizer = std::make_unique<mini::AdamW>(mini::decay_groups(*net, AdamWOptions(0.1)));
    for (int64_t i = 0; i < step; ++i) update();
    state = {.step = step, .seconds = 1.5 * static_cast<double>(step), .config = kConfig};
    state.generators["windows"] = at::detail::getDefaultCPUGenerator().get_state();
  }

  void update() {
    optimizer->zero_grad();
    net->forward(torch::randn({8, 3})).square().mean().backward();
    optimizer->step();
  }

  void save(const fs::path& path) const { save_checkpoint(path, *net, *optimizer, state); }
  void load(const fs::path& path) { state = load_checkpoint(path, *net, *optimizer, kConfig); }

  torch::nn::Sequential net{nullptr};
  std::unique_ptr<mini::AdamW> optimizer;
  TrainingState state;
};

void check_same(const Run& actual, const Run& expected) {
  const auto check = [](const auto& a, const auto& e) {
    REQUIRE(a.keys() == e.keys());
    for (const auto& item : e) CHECK_THAT(a[item.key()], Equals(item.value()));
  };
  check(mini::state_dict(*actual.net), mini::state_dict(*expected.net));
  check(mini::optimizer_state_dict(*actual.optimizer, *actual.net),
        mini::optimizer_state_dict(*expected.optimizer, *expected.net));
  CHECK(actual.state.step == expected.state.step);
  CHECK(actual.state.seconds == expected.state.seconds);
  CHECK(actual.state.best_val_loss == expected.state.best_val_loss);
  CHECK(actual.state.config == expected.state.config);
  REQUIRE(actual.state.generators.size() == expected.state.generators.size());
  for (const auto& [name, bytes] : expected.state.generators) {
    CHECK_THAT(actual.state.generators.at(name), Equals(bytes));
  }
}

/// The checkpoint at `path` is that of `expected`, whatever was in the objects before.
void check_holds(const fs::path& path, const Run& expected) {
  Run loaded(1);
  loaded.load(path);
  check_same(loaded, expected);
}

std::string error_of_loading(const fs::path& path, const Config& config = kConfig) {
  Run run(1);
  return error_of([&] { load_checkpoint(path, *run.net, *run.optimizer, config); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a checkpoint brings back model, optimizer and state, bit for bit", "[checkpoint]") {
  const TemporaryFolder folder;
  Run run(3);
  run.state.best_val_loss = 0.1;  // no short binary fraction
  run.state.seconds = 1e-3 / 3;
  run.save(folder / "last");
  CHECK(folder.entries() == Names{"last"});
  check_holds(folder / "last", run);

  Run resumed(1);
  resumed.load(folder / "last");
  for (Run* each : {&run, &resumed}) {
    torch::manual_seed(9);
    for (int i = 0; i < 3; ++i) each->update();
  }
  check_same(resumed, run);
}

TEST_CASE("a checkpoint of nothing yet is one too", "[checkpoint]") {
  const TemporaryFolder folder;
  Run run(0);
  run.state.generators.clear();
  REQUIRE(std::isinf(run.state.best_val_loss));
  run.save(folder / "last");
  check_holds(folder / "last", run);
}

TEST_CASE("a generator goes on where its state was saved", "[checkpoint]") {
  const TemporaryFolder folder;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  at::randn({3}, generator);  // leaves half a pair of normal numbers behind
  Run run(1);
  run.state.generators = {{"dropout", generator.get_state()}};
  run.save(folder / "last");
  const at::Tensor expected = at::randn({20}, generator);
  Run loaded(2);
  loaded.load(folder / "last");
  auto other = at::make_generator<at::CPUGeneratorImpl>(6);
  other.set_state(loaded.state.generators.at("dropout"));
  CHECK_THAT(at::randn({20}, other), Equals(expected));
}

TEST_CASE("the files of a checkpoint are the documented ones", "[checkpoint]") {
  const TemporaryFolder folder;
  Run(2).save(folder / "last");
  Names names;
  for (const auto& entry : fs::directory_iterator(folder / "last")) {
    names.insert(entry.path().filename().string());
  }
  CHECK(names == Names{"model.safetensors", "optimizer.safetensors", "state.json"});
  const auto model = mini::load_safetensors(folder / "last/model.safetensors");
  CHECK(model.tensors.contains("0.weight"));
  CHECK(model.tensors.contains("1.running_mean"));
  CHECK(model.metadata == Config{{"format", "pt"}, {"step", "2"}});
  const auto optimizer = mini::load_safetensors(folder / "last/optimizer.safetensors");
  CHECK(optimizer.tensors["0.weight.step"].item<int64_t>() == 2);
  const std::string state = read_file(folder / "last/state.json");
  CHECK_THAT(state, ContainsSubstring("\"step\": 2"));
  CHECK_THAT(state, ContainsSubstring("\"n_layer\": \"4\""));
}

TEST_CASE("the same state gives the same bytes", "[checkpoint]") {
  const TemporaryFolder folder;
  Run(2).save(folder / "a");
  Run(2).save(folder / "b");
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    CHECK(read_file(folder / "a" / name) == read_file(folder / "b" / name));
  }
}

TEST_CASE("an exception in the middle of a save leaves the old checkpoint", "[checkpoint]") {
  const TemporaryFolder folder;
  const Run old(2);
  old.save(folder / "last");
  Run next(3);
  at::Tensor third = next.net->named_parameters()["1.weight"];
  third.set_data(third.detach().clone());
  third.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "the third tensor fails");
  CHECK_THAT(error_of([&] { next.save(folder / "last"); }),
             ContainsSubstring("the third tensor fails"));
  check_holds(folder / "last", old);
  CHECK(folder.entries() == Names{"last"});
}

TEST_CASE("a kill in any file of a save leaves the old checkpoint", "[checkpoint]") {
  const TemporaryFolder folder;
  const Run old(2), next(3);
  old.save(folder / "last");
  std::vector<rlim_t> limits = {0, 100};
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    limits.push_back(fs::file_size(folder / "last" / name) - 1);
  }
  for (const rlim_t limit : limits) {
    INFO(limit);
    const int status = in_child([&] {
      ::signal(SIGXFSZ, [](int) { ::raise(SIGKILL); });  // sent by the write past the limit
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

TEST_CASE("a full disk in any file of a save leaves the old checkpoint", "[checkpoint]") {
  const TemporaryFolder folder;
  const Run old(2), next(3);
  old.save(folder / "last");
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    INFO(name);
    const rlim_t limit = fs::file_size(folder / "last" / name) - 1;
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit file_size = {limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &file_size);
      require_error(error_of([&] { next.save(folder / "last"); }), "File too large");
    });
    CHECK(status == 0);
    CHECK(folder.entries() == Names{"last"});
    check_holds(folder / "last", old);
  }
}

TEST_CASE("a checkpoint cut off anywhere is refused", "[checkpoint]") {
  const TemporaryFolder folder;
  Run run(2);
  run.state.generators = {{"windows", at::arange(4).to(at::kByte)}};
  run.save(folder / "last");
  Run target(1);
  const Run before(1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string whole = read_file(folder / "last" / name);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write_file(folder / "last" / name, whole.substr(0, size));
      const std::string error = error_of([&] { target.load(folder / "last"); });
      if (error.find(name) == std::string::npos) FAIL(name << " of " << size << ": " << error);
    }
    fs::remove(folder / "last" / name);
    CHECK_THAT(error_of([&] { target.load(folder / "last"); }),
               ContainsSubstring(std::string(name) + "': No such file or directory"));
    write_file(folder / "last" / name, whole);
  }
  check_same(target, before);  // none of them touched it
  target.load(folder / "last");
  check_same(target, run);
}

TEST_CASE("another configuration is refused with both values", "[checkpoint]") {
  const TemporaryFolder folder;
  Run(2).save(folder / "last");
  const std::string error =
      error_of_loading(folder / "last", {{"n_layer", "6"}, {"dropout", "0.1"}, {"bias", "true"}});
  CHECK_THAT(error, ContainsSubstring("load_checkpoint: " + (folder / "last").string() +
                                      ": another configuration: bias none there, true here; "
                                      "n_layer 4 there, 6 here"));
  CHECK_THAT(error, !ContainsSubstring("dropout"));
  CHECK_THAT(error_of_loading(folder / "last", {{"n_layer", "4"}}),
             ContainsSubstring("dropout 0.1 there, none here"));
}

TEST_CASE("another version or format is refused", "[checkpoint]") {
  const TemporaryFolder folder;
  Run(2).save(folder / "last");
  const std::string whole = read_file(folder / "last/state.json");
  const std::vector<std::tuple<std::string, std::string, std::string>> changes = {
      {"\"version\": 1", "\"version\": 2", "expected version 1, got 2"},
      {"mini-transformer checkpoint", "pickle", "expected a mini-transformer checkpoint"},
      {"\"step\": 2", "\"step\": \"2\"", "step: expected a whole number, got \"2\""},
      {"\"step\": 2", "\"step\": 3", "model.safetensors: expected tensors of step 3, got 2"},
      {"\"seconds\"", "\"minutes\"", "seconds: expected a value"},
      {"\"best_val_loss\"", "\"worst_val_loss\"", "best_val_loss: expected a value"},
      {"\"windows\": \"", "\"windows\": \"x", "expected bytes in hexadecimal"},
      {"\"windows\": \"", "\"windows\": \"0", "expected bytes in hexadecimal"},
      {"\"n_layer\": \"4\"", "\"n_layer\": 4", "n_layer: expected a string, got 4"},
  };
  for (const auto& [from, to, expected] : changes) {
    write_file(folder / "last/state.json", replaced(whole, from, to));
    const std::string error = error_of_loading(folder / "last");
    CHECK_THAT(error, ContainsSubstring("load_checkpoint: "));
    CHECK_THAT(error, ContainsSubstring(expected));
  }
}

TEST_CASE("files of different steps are refused", "[checkpoint]") {
  const TemporaryFolder folder;
  Run(2).save(folder / "a");
  Run(3).save(folder / "b");
  fs::copy_file(folder / "b/optimizer.safetensors", folder / "a/optimizer.safetensors",
                fs::copy_options::overwrite_existing);
  CHECK_THAT(error_of_loading(folder / "a"),
             ContainsSubstring("optimizer.safetensors: expected tensors of step 2, got 3"));
}

TEST_CASE("another model is refused by the names of its tensors", "[checkpoint]") {
  const TemporaryFolder folder;
  Run(2).save(folder / "last");
  torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5));
  mini::AdamW optimizer(mini::decay_groups(*net, AdamWOptions(0.1)));
  const std::string error =
      error_of([&] { load_checkpoint(folder / "last", *net, optimizer, kConfig); });
  CHECK_THAT(error, ContainsSubstring("0.weight: wrong shape, expected [5, 3], got [2, 3]"));
}

TEST_CASE("saving over a loaded checkpoint keeps what was loaded", "[checkpoint]") {
  const TemporaryFolder folder;
  Run run(2);
  run.save(folder / "last");
  const auto mapped = mini::load_safetensors(folder / "last/model.safetensors");
  const at::Tensor before = mapped.tensors["0.weight"].clone();
  Run loaded(1);
  loaded.load(folder / "last");
  loaded.update();
  loaded.state.step = 3;
  loaded.save(folder / "last");
  CHECK_THAT(mapped.tensors["0.weight"], Equals(before));
  check_holds(folder / "last", loaded);
}

TEST_CASE("a folder of other files is not taken for a place to save", "[checkpoint]") {
  const TemporaryFolder folder;
  write_file(folder / "thesis.txt", "years of work");
  CHECK_THAT(error_of([&] { Run(1).save(folder.path()); }),
             ContainsSubstring("save_checkpoint: cannot replace"));
  CHECK(read_file(folder / "thesis.txt") == "years of work");
  CHECK_THAT(error_of([&] { Run(1).save(folder / "none/last"); }),
             ContainsSubstring("save_checkpoint: cannot write '" + (folder / "none/last").string() +
                               "': No such file"));
}
