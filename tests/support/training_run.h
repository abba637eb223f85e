// SPDX-License-Identifier: MIT
// A small training run, for tests of checkpoints.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "mini/checkpoint.h"
#include "mini/optimizer.h"
#include "mini/state_dict.h"
#include "support/support.h"

namespace mini::test {

inline const std::set<std::string> kCheckpointFiles = {
    "generators.safetensors", "model.safetensors", "optimizer.safetensors", "state.json"};

inline const std::map<std::string, std::string> kConfig = {{"n_layer", "4"}, {"dropout", "0.1"}};

/// A model after `step` updates, with its optimizer and its training state.
struct TrainingRun {
  explicit TrainingRun(int64_t step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    net = torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
    optimizer = std::make_unique<AdamW>(decay_groups(*net, torch::optim::AdamWOptions(0.1)));
    for (int64_t i = 0; i < step; ++i) update();
    state = {.step = step, .seconds = 1.5 * static_cast<double>(step), .config = kConfig};
    state.generators["windows"] = at::detail::getDefaultCPUGenerator().get_state();
  }

  void update() {
    optimizer->zero_grad();
    net->forward(torch::randn({8, 3})).square().mean().backward();
    optimizer->step();
  }

  void save(const std::filesystem::path& path) const {
    save_checkpoint(path, *net, *optimizer, state);
  }
  /// Expects the configuration of this run.
  void load(const std::filesystem::path& path) {
    state = load_checkpoint(path, *net, *optimizer, state.config);
  }

  torch::nn::Sequential net{nullptr};
  std::unique_ptr<AdamW> optimizer;
  TrainingState state;
};

/// Requires equal bits in the model, the optimizer and the training state.
inline void check_same(const TrainingRun& actual, const TrainingRun& expected) {
  const auto check = [](const auto& a, const auto& e) {
    REQUIRE(a.keys() == e.keys());
    for (const auto& item : e) CHECK_THAT(a[item.key()], Equals(item.value()));
  };
  check(state_dict(*actual.net), state_dict(*expected.net));
  check(optimizer_state_dict(*actual.optimizer, *actual.net),
        optimizer_state_dict(*expected.optimizer, *expected.net));
  CHECK(actual.state.step == expected.state.step);
  CHECK(actual.state.seconds == expected.state.seconds);
  CHECK(actual.state.best_val_loss == expected.state.best_val_loss);
  CHECK(actual.state.config == expected.state.config);
  REQUIRE(actual.state.generators.size() == expected.state.generators.size());
  for (const auto& [name, bytes] : expected.state.generators) {
    CHECK_THAT(actual.state.generators.at(name), Equals(bytes));
  }
}

/// Requires that the checkpoint at `path` holds `expected`: loads it into another run.
inline void check_holds(const std::filesystem::path& path, const TrainingRun& expected) {
  TrainingRun loaded(1);
  loaded.state.config = expected.state.config;
  loaded.load(path);
  check_same(loaded, expected);
}

}  // namespace mini::test
