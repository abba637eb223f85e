// SPDX-License-Identifier: MIT
// Checkpoints that load_checkpoint refuses, and the message of each.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "mini/checkpoint.h"
#include "mini/optimizer.h"
#include "mini/safetensors.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"
#include "support/training_run.h"

namespace fs = std::filesystem;
using mini::load_checkpoint;
using mini::test::check_same;
using mini::test::ContainsSubstring;
using mini::test::error_of;
using mini::test::kCheckpointFiles;
using mini::test::kConfig;
using mini::test::read_file;
using mini::test::TemporaryFolder;
using mini::test::TrainingRun;
using mini::test::write_file;

namespace {

using Config = std::map<std::string, std::string>;

std::string error_of_loading(const fs::path& path, const Config& config = kConfig) {
  TrainingRun run(1);
  return error_of([&] { load_checkpoint(path, *run.net, *run.optimizer, config); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("load_checkpoint refuses a file that is cut off at any byte", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun run(2);
  run.state.generators = {{"windows", at::arange(4).to(at::kByte)}};
  run.save(folder / "last");
  TrainingRun target(1);
  const TrainingRun before(1);
  for (const std::string& name : kCheckpointFiles) {
    const std::string whole = read_file(folder / "last" / name);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write_file(folder / "last" / name, whole.substr(0, size));
      const std::string error = error_of([&] { target.load(folder / "last"); });
      if (error.find(name) == std::string::npos) FAIL(name << " of " << size << ": " << error);
    }
    fs::remove(folder / "last" / name);
    CHECK_THAT(error_of([&] { target.load(folder / "last"); }),
               ContainsSubstring(name + "': No such file or directory"));
    write_file(folder / "last" / name, whole);
  }
  check_same(target, before);  // unchanged by the refused loads
  target.load(folder / "last");
  check_same(target, run);
}

TEST_CASE("load_checkpoint names both values of each setting that differs", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(2).save(folder / "last");
  const std::string error =
      error_of_loading(folder / "last", {{"n_layer", "6"}, {"dropout", "0.1"}, {"bias", "true"}});
  CHECK_THAT(error, ContainsSubstring("load_checkpoint: " + (folder / "last").string() +
                                      ": the configuration differs: bias: expected true, got "
                                      "none; n_layer: expected 6, got 4"));
  CHECK_THAT(error, !ContainsSubstring("dropout"));
  CHECK_THAT(error_of_loading(folder / "last", {{"n_layer", "4"}}),
             ContainsSubstring("dropout: expected none, got 0.1"));
}

TEST_CASE("load_checkpoint refuses another format and values of the wrong type", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(2).save(folder / "last");
  const std::string whole = read_file(folder / "last/state.json");
  const std::vector<std::tuple<std::string, std::string, std::string>> changes = {
      {"\"version\": 2", "\"version\": 3", "expected a checkpoint of version 2, got version 3"},
      {"mini-transformer checkpoint", "pickle", "expected a mini-transformer checkpoint"},
      {"\"step\": 2", "\"step\": \"2\"", "step: expected a whole number, got \"2\""},
      {"\"step\": 2", "\"step\": 3", "generators.safetensors: expected tensors of step 3, got 2"},
      {"\"seconds\"", "\"minutes\"", "seconds: expected a value"},
      {"\"best_val_loss\"", "\"worst_val_loss\"", "best_val_loss: expected a value"},
      {"\"n_layer\": \"4\"", "\"n_layer\": 4", "n_layer: expected a string, got 4"},
  };
  for (const auto& [from, to, expected] : changes) {
    write_file(folder / "last/state.json", replaced(whole, from, to));
    const std::string error = error_of_loading(folder / "last");
    CHECK_THAT(error, ContainsSubstring("load_checkpoint: "));
    CHECK_THAT(error, ContainsSubstring(expected));
  }
}

TEST_CASE("load_checkpoint refuses a checkpoint of version 1", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(2).save(folder / "last");
  fs::remove(folder / "last/generators.safetensors");  // version 1 had no such file
  const std::string state = read_file(folder / "last/state.json");
  write_file(folder / "last/state.json", replaced(state, "\"version\": 2", "\"version\": 1"));
  CHECK_THAT(error_of_loading(folder / "last"),
             ContainsSubstring("load_checkpoint: '" + (folder / "last/state.json").string() +
                               "': expected a checkpoint of version 2, got version 1"));
}

TEST_CASE("load_checkpoint refuses files of different steps", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(3).save(folder / "other");
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "generators.safetensors"}) {
    TrainingRun(2).save(folder / "last");
    fs::copy_file(folder / "other" / name, folder / "last" / name,
                  fs::copy_options::overwrite_existing);
    CHECK_THAT(error_of_loading(folder / "last"),
               ContainsSubstring(std::string(name) + ": expected tensors of step 2, got 3"));
  }
}

TEST_CASE("generator states must be uint8 tensors", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun run(2);
  run.save(folder / "last");
  torch::OrderedDict<std::string, at::Tensor> generators;
  generators.insert("windows", at::zeros({4}, at::kInt));
  mini::save_safetensors(folder / "last/generators.safetensors", generators, {{"step", "2"}});
  const std::string expected = "generator windows: expected a state of dtype Byte, got Int";
  CHECK_THAT(error_of_loading(folder / "last"),
             ContainsSubstring("generators.safetensors: " + expected));
  run.state.generators["windows"] = generators["windows"];
  CHECK_THAT(error_of([&] { run.save(folder / "last"); }),
             ContainsSubstring("save_checkpoint: " + expected));
}

TEST_CASE("load_checkpoint refuses another model and names the tensors that do not fit",
          "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(2).save(folder / "last");
  torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5));
  mini::AdamW optimizer(mini::decay_groups(*net, torch::optim::AdamWOptions(0.1)));
  const std::string error =
      error_of([&] { load_checkpoint(folder / "last", *net, optimizer, kConfig); });
  CHECK_THAT(error, ContainsSubstring("0.weight: wrong shape, expected [5, 3], got [2, 3]"));
}
