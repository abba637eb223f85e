// SPDX-License-Identifier: MIT
// What a checkpoint saves and restores. Failed saves and refused loads have files of their own.
#include "mini/checkpoint.h"

#include <cmath>
#include <map>
#include <string>

#include "mini/safetensors.h"
#include "support/files.h"
#include "support/support.h"
#include "support/training_run.h"

namespace fs = std::filesystem;
using mini::test::check_holds;
using mini::test::check_same;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::kCheckpointFiles;
using mini::test::read_file;
using mini::test::TemporaryFolder;
using mini::test::TrainingRun;

TEST_CASE("a checkpoint restores model, optimizer and training state bit for bit", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun run(3);
  run.state.best_val_loss = 0.1;  // not exact in binary
  run.state.seconds = 1e-3 / 3;
  run.save(folder / "last");
  CHECK(folder.entries() == std::set<std::string>{"last"});
  check_holds(folder / "last", run);

  TrainingRun resumed(1);
  resumed.load(folder / "last");
  for (TrainingRun* each : {&run, &resumed}) {
    torch::manual_seed(9);
    for (int i = 0; i < 3; ++i) each->update();
  }
  check_same(resumed, run);
}

TEST_CASE("a checkpoint before the first step can be saved and loaded", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun run(0);
  run.state.generators.clear();
  REQUIRE(std::isinf(run.state.best_val_loss));
  run.save(folder / "last");
  check_holds(folder / "last", run);
}

TEST_CASE("a generator with a restored state continues its sequence", "[checkpoint]") {
  const TemporaryFolder folder;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  // Normal numbers are drawn in pairs: the state includes the unused half of the second pair.
  at::randn({3}, generator);
  TrainingRun run(1);
  run.state.generators = {{"dropout", generator.get_state()}};
  run.save(folder / "last");
  const at::Tensor expected = at::randn({20}, generator);
  TrainingRun loaded(2);
  loaded.load(folder / "last");
  auto other = at::make_generator<at::CPUGeneratorImpl>(6);
  other.set_state(loaded.state.generators.at("dropout"));
  CHECK_THAT(at::randn({20}, other), Equals(expected));
}

TEST_CASE("a checkpoint consists of the documented files", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(2).save(folder / "last");
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "last")) {
    names.insert(entry.path().filename().string());
  }
  CHECK(names == kCheckpointFiles);
  const auto model = mini::load_safetensors(folder / "last/model.safetensors");
  CHECK(model.tensors.contains("0.weight"));
  CHECK(model.tensors.contains("1.running_mean"));
  CHECK(model.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"step", "2"}});
  const auto optimizer = mini::load_safetensors(folder / "last/optimizer.safetensors");
  CHECK(optimizer.tensors["0.weight.step"].item<int64_t>() == 2);
  const auto generators = mini::load_safetensors(folder / "last/generators.safetensors");
  CHECK(generators.tensors.keys() == std::vector<std::string>{"windows"});
  CHECK(generators.tensors["windows"].scalar_type() == at::kByte);
  CHECK(generators.metadata == model.metadata);
  const std::string state = read_file(folder / "last/state.json");
  CHECK_THAT(state, ContainsSubstring("\"step\": 2"));
  CHECK_THAT(state, ContainsSubstring("\"n_layer\": \"4\""));
}

TEST_CASE("checkpoints of equal training states have equal bytes", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun(2).save(folder / "a");
  TrainingRun(2).save(folder / "b");
  for (const std::string& name : kCheckpointFiles) {
    CHECK(read_file(folder / "a" / name) == read_file(folder / "b" / name));
  }
}

TEST_CASE("saving over a loaded checkpoint does not change the loaded tensors", "[checkpoint]") {
  const TemporaryFolder folder;
  TrainingRun run(2);
  run.save(folder / "last");
  const auto mapped = mini::load_safetensors(folder / "last/model.safetensors");
  const at::Tensor before = mapped.tensors["0.weight"].clone();
  TrainingRun loaded(1);
  loaded.load(folder / "last");
  loaded.update();
  loaded.state.step = 3;
  loaded.save(folder / "last");
  CHECK_THAT(mapped.tensors["0.weight"], Equals(before));
  check_holds(folder / "last", loaded);
}
