// SPDX-License-Identifier: MIT
#include "mini/checkpoint.h"

#include <c10/util/Exception.h>
#include <torch/ordered_dict.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "files/atomic_folder.h"
#include "files/json_file.h"
#include "files/with_prefix.h"
#include "mini/optimizer.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"

namespace mini {
namespace {

namespace fs = std::filesystem;
using TensorDict = torch::OrderedDict<std::string, at::Tensor>;

// The value of `name`, or "none" if `values` does not contain it.
std::string value_or_none(const std::map<std::string, std::string>& values,
                          const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "none" : found->second;
}

constexpr const char* kFormat = "mini-transformer checkpoint";
constexpr int64_t kVersion = 2;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kGeneratorsFile = "generators.safetensors";
constexpr const char* kStateFile = "state.json";

detail::Json to_json(const TrainingState& state) {
  // JSON has no infinity: a best_val_loss of infinity is written as null.
  detail::Json json = {{"format", kFormat},        {"version", kVersion},
                       {"step", state.step},       {"seconds", state.seconds},
                       {"best_val_loss", nullptr}, {"config", state.config}};
  if (std::isfinite(state.best_val_loss)) json["best_val_loss"] = state.best_val_loss;
  return json;
}

/// Returns the state without the generators, which have their own file.
TrainingState from_json(const detail::Json& json) {
  if (detail::json_member<std::string>(json, "format") != kFormat) {
    throw std::runtime_error("expected a " + std::string(kFormat));
  }
  const auto version = detail::json_member<int64_t>(json, "version");
  if (version != kVersion) {
    throw std::runtime_error("expected a checkpoint of version " + std::to_string(kVersion) +
                             ", got version " + std::to_string(version));
  }
  TrainingState state;
  state.step = detail::json_member<int64_t>(json, "step");
  state.seconds = detail::json_member<double>(json, "seconds");
  const bool none_yet = json.contains("best_val_loss") && json["best_val_loss"].is_null();
  if (!none_yet) state.best_val_loss = detail::json_member<double>(json, "best_val_loss");
  const auto config = detail::json_member<detail::Json>(json, "config");
  for (const auto& item : config.items()) {
    state.config[item.key()] = detail::json_member<std::string>(config, item.key());
  }
  return state;
}

/// "n_layer: expected 6, got 4; ..." for each setting that differs, "" if all are equal.
std::string differences(const std::map<std::string, std::string>& expected,
                        const std::map<std::string, std::string>& saved) {
  std::map<std::string, std::string> all = expected;
  all.insert(saved.begin(), saved.end());
  std::string list;
  for (const auto& [name, ignored] : all) {
    const std::string want = value_or_none(expected, name);
    const std::string got = value_or_none(saved, name);
    if (got == want) continue;
    list += (list.empty() ? "" : "; ") + name + ": expected " + want + ", got " + got;
  }
  return list;
}

/// The tensors of the file at `path`, which must belong to `step`.
TensorDict load_tensors(const fs::path& path, int64_t step) {
  const SafetensorsFile file = load_safetensors(path);
  const std::string found = value_or_none(file.metadata, "step");
  TORCH_CHECK(found == std::to_string(step), "load_checkpoint: ", path.string(),
              ": expected tensors of step ", step, ", got ", found);
  return file.tensors;
}

void check_generator(const std::string& where, const std::string& name, const at::Tensor& state) {
  TORCH_CHECK(state.scalar_type() == at::kByte, where, ": generator ", name,
              ": expected a state of dtype Byte, got ", state.scalar_type());
}

/// Returns copies, since the tensors of a file are views of its mapping.
std::map<std::string, at::Tensor> load_generators(const fs::path& path, int64_t step) {
  std::map<std::string, at::Tensor> generators;
  for (const auto& item : load_tensors(path, step)) {
    check_generator("load_checkpoint: " + path.string(), item.key(), item.value());
    generators[item.key()] = item.value().clone();
  }
  return generators;
}

// state.json must be read back as it was. JSON has no NaN, and null means that no loss is known.
void check_numbers(const TrainingState& state) {
  TORCH_CHECK(std::isfinite(state.seconds), "save_checkpoint: expected finite seconds, got ",
              state.seconds);
  TORCH_CHECK(state.best_val_loss > -std::numeric_limits<double>::infinity(),
              "save_checkpoint: expected a best_val_loss that is a number or infinity, got ",
              state.best_val_loss);
}

}  // namespace

void save_checkpoint(const fs::path& path, const torch::nn::Module& module,
                     const torch::optim::AdamW& optimizer, const TrainingState& state) {
  check_numbers(state);
  TensorDict generators;
  for (const auto& [name, generator] : state.generators) {
    check_generator("save_checkpoint", name, generator);
    generators.insert(name, generator);
  }
  detail::with_prefix<std::runtime_error>("save_checkpoint: ", [&] {
    detail::AtomicFolder folder(path);
    const auto save = [&](const char* file, const TensorDict& tensors) {
      save_safetensors(folder.path() / file, tensors,
                       {{"format", "pt"}, {"step", std::to_string(state.step)}});
    };
    save(kModelFile, state_dict(module));
    save(kOptimizerFile, optimizer_state_dict(optimizer, module));
    save(kGeneratorsFile, generators);
    detail::write_json(folder.path() / kStateFile, to_json(state));
    folder.commit();
  });
}

TrainingState load_checkpoint(const fs::path& path, torch::nn::Module& module,
                              torch::optim::AdamW& optimizer,
                              const std::map<std::string, std::string>& config) {
  fs::path folder;
  TrainingState state;
  detail::with_prefix<std::runtime_error>("load_checkpoint: ", [&] {
    folder = detail::AtomicFolder::find(path);
    state = detail::read_json(folder / kStateFile, from_json);
  });
  const std::string difference = differences(config, state.config);
  TORCH_CHECK(difference.empty(), "load_checkpoint: ", path.string(),
              ": the configuration differs: ", difference);
  state.generators = load_generators(folder / kGeneratorsFile, state.step);
  const TensorDict model_tensors = load_tensors(folder / kModelFile, state.step);
  const TensorDict optimizer_tensors = load_tensors(folder / kOptimizerFile, state.step);
  load_state_dict(module, model_tensors);
  load_optimizer_state_dict(optimizer, module, optimizer_tensors);
  return state;
}

}  // namespace mini
