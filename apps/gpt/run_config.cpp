// SPDX-License-Identifier: MIT
#include "gpt/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <type_traits>

#include "common/app.h"
#include "files/json_file.h"
#include "gpt/run_folder.h"

namespace mini::app {
namespace {

namespace fs = std::filesystem;

// The values of the setting `scale` that are not numbers.
constexpr const char* kRootScale = "1/sqrt(d_k)";
constexpr const char* kLinearScale = "1/d_k";
constexpr const char* kNoScale = "none";

// The factor on the scores, or nothing for 1 / sqrt(d_k).
std::optional<double> scale_of(const RunConfig& config) {
  if (config.scale == kRootScale) {
    return std::nullopt;
  }
  if (config.scale == kLinearScale) {
    return static_cast<double>(config.n_head) / static_cast<double>(config.n_embd);
  }
  return config.scale == kNoScale ? 1.0 : number_of(config.scale).value();
}

// Most texts have valid values that are not valid options, such as the tokenizer "model".
template <typename Value>
void check_value(const RunSetting& setting, Value& value) {
  std::string error;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (setting.check_text) error = setting.check(value);
  } else if constexpr (!std::is_same_v<Value, bool>) {
    error = setting.check(Json(value).dump());
  }
  if (!error.empty()) {
    throw std::runtime_error(fmt::format("{}: {}", setting.name, error));
  }
}

RunConfig from_json(const Json& json) {
  RunConfig config;
  size_t found = 0;
  for_each_setting(config, [&](const RunSetting& setting, auto& value) {
    if (!setting.required && json.is_object() && !json.contains(setting.name)) {
      return;
    }
    value = detail::json_member<std::remove_reference_t<decltype(value)>>(json, setting.name);
    check_value(setting, value);
    ++found;
  });
  if (json.size() != found) {
    throw std::runtime_error(fmt::format("expected the {} settings of a run, got {}",
                                         run_settings().size(), json.size()));
  }
  return config;
}

}  // namespace

std::string RunSetting::option() const {
  std::string option = "--" + name;
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

const std::vector<RunSetting>& run_settings() {
  static const std::vector<RunSetting> settings = {
      {"data", &RunConfig::data, file_name(),
       "Text file; the last tenth of it is for validation only", "FILE"},
      {"init_from", &RunConfig::init_from, file_name(),
       "Start with the weights, sizes and tokenizer of this model: the folder of a run, a "
       "checkpoint, or a GPT-2 (config.json, model.safetensors). For a GPT-2, --data must "
       "contain token ids: '1 2 3'",
       "MODEL"},
      {"tokenizer", &RunConfig::tokenizer, one_of({"characters", "bytes"}),
       "Tokens: characters or bytes"},
      {"block_size", &RunConfig::block_size, positive_integer(), "Tokens per window, T"},
      {"batch_size", &RunConfig::batch_size, positive_integer(), "Windows per batch, B"},
      {"n_layer", &RunConfig::n_layer, positive_integer(), "Number of blocks"},
      {"n_head", &RunConfig::n_head, positive_integer(), "Heads per block"},
      {"n_embd", &RunConfig::n_embd, positive_integer(), "Width of the model, C"},
      {.name = "scale",
       .member = &RunConfig::scale,
       .check = one_of_or_positive_number({kRootScale, kLinearScale, kNoScale}),
       .help = "Factor on the scores: 1/sqrt(d_k), 1/d_k, none, or a number above 0",
       .check_text = true,
       .required = false},
      {"dropout", &RunConfig::dropout, probability(), "Dropout probability during training"},
      {"bias", &RunConfig::bias, {}, "Add a bias to layer norms and linear layers"},
      {"gelu_approximate", &RunConfig::gelu_approximate, one_of({"none", "tanh"}),
       "Activation: none for exact GELU, tanh for GPT-2's approximation"},
      {"steps", &RunConfig::steps, positive_integer(), "Number of training steps"},
      {"learning_rate", &RunConfig::learning_rate, positive_number(),
       "Learning rate after warm-up"},
      {"min_learning_rate", &RunConfig::min_learning_rate, number_from_zero(),
       "Learning rate at the end of the cosine schedule", "", "a tenth of --learning-rate"},
      {"warmup_steps", &RunConfig::warmup_steps, whole_number(), "Steps of linear warm-up", "",
       fmt::format("{} or a tenth of --steps, whichever is less", RunConfig().warmup_steps)},
      {"schedule", &RunConfig::schedule, one_of({"cosine", "constant"}),
       "Learning rate after warm-up: cosine decay or constant"},
      {"weight_decay", &RunConfig::weight_decay, number_from_zero(),
       "Weight decay of weight matrices and embeddings"},
      {"beta1", &RunConfig::beta1, decay_rate(), "AdamW's decay rate of the mean gradient"},
      {"beta2", &RunConfig::beta2, decay_rate(), "AdamW's decay rate of the mean squared gradient"},
      {"clip", &RunConfig::clip, number_from_zero(), "Largest gradient norm; 0 disables clipping"},
      {"accumulate", &RunConfig::accumulate, positive_integer(),
       "Batches per step, whose gradients are averaged"},
      {"eval_every", &RunConfig::eval_every, positive_integer(),
       "Steps between evaluations; each evaluation saves a checkpoint"},
      {.name = "threads",
       .member = &RunConfig::threads,
       .check = thread_count(),
       .help = "CPU threads",
       .default_text = "LibTorch's choice",
       .fixed = false},
      {"seed", &RunConfig::seed, seed_number(), "Seed of initial weights, windows and dropout"}};
  return settings;
}

Json to_json(const RunConfig& config) {
  Json json;
  for_each_setting(
      config, [&](const RunSetting& setting, const auto& value) { json[setting.name] = value; });
  return json;
}

RunConfig read_run_config(const fs::path& run) {
  if (!fs::exists(run / kConfigFile)) {
    throw std::runtime_error(fmt::format("'{}' is not the folder of a training run: it has no {}",
                                         run.string(), kConfigFile));
  }
  return detail::read_json(run / kConfigFile, from_json);
}

std::string scale_text(const std::optional<double>& scale) {
  return !scale ? kRootScale : *scale == 1.0 ? kNoScale : fmt::format("{}", *scale);
}

GPT untrained_gpt(const RunConfig& config, int64_t vocab_size) {
  return GPT(GPTOptions(vocab_size)
                 .block_size(config.block_size)
                 .n_layer(config.n_layer)
                 .n_head(config.n_head)
                 .n_embd(config.n_embd)
                 .dropout(config.dropout)
                 .scale(scale_of(config))
                 .bias(config.bias)
                 .gelu_approximate(config.gelu_approximate)
                 .seed(config.seed));
}

}  // namespace mini::app
