// SPDX-License-Identifier: MIT
#include "gpt/run_folder.h"

#include <fmt/format.h>

#include <stdexcept>
#include <type_traits>

#include "files/atomic_folder.h"
#include "mini/pretrained.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"

namespace mini::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";

// What the loop divides by or counts to; the rest is checked by those who use it.
void check_ranges(const RunConfig& config) {
  for_each_setting(config, [](const std::string& name, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const int64_t&>) {
      if (value < (name == "warmup_steps" ? 0 : 1)) {
        throw std::runtime_error(fmt::format("{}: out of range, got {}", name, value));
      }
    }
  });
}

RunConfig from_json(const Json& json) {
  RunConfig config;
  size_t settings = 0;
  for_each_setting(config, [&](const std::string& name, auto& value) {
    value = detail::json_member<std::remove_reference_t<decltype(value)>>(json, name);
    ++settings;
  });
  if (json.size() != settings) {
    throw std::runtime_error(
        fmt::format("expected the {} settings of a run, got {}", settings, json.size()));
  }
  check_ranges(config);
  return config;
}

// A run has a config.json too.
bool is_gpt2(const fs::path& path) {
  return fs::exists(path / kConfigFile) &&
         detail::read_json(path / kConfigFile).contains("model_type");
}

// The checkpoint that `path` means, itself or in the run that it is.
fs::path find_checkpoint(const fs::path& path) {
  if (!fs::exists(path / kConfigFile)) {
    return detail::AtomicFolder::find(path);
  }
  const fs::path best = detail::AtomicFolder::find(path / "best");
  return fs::exists(best) ? best : detail::AtomicFolder::find(path / "last");
}

}  // namespace

Json to_json(const RunConfig& config) {
  Json json;
  for_each_setting(config, [&](const std::string& name, const auto& value) { json[name] = value; });
  return json;
}

RunConfig read_config(const fs::path& run) {
  if (!fs::exists(run / kConfigFile)) {
    throw std::runtime_error(fmt::format("'{}' is not the folder of a training run: it has no {}",
                                         run.string(), kConfigFile));
  }
  return detail::read_json(run / kConfigFile, from_json);
}

GPT make_gpt(const RunConfig& config, int64_t vocab_size) {
  return GPT(GPTOptions(vocab_size)
                 .block_size(config.block_size)
                 .n_layer(config.n_layer)
                 .n_head(config.n_head)
                 .n_embd(config.n_embd)
                 .dropout(config.dropout)
                 .bias(config.bias)
                 .gelu_approximate(config.gelu_approximate)
                 .seed(config.seed));
}

TrainedModel load_trained_model(const fs::path& path) {
  if (is_gpt2(path)) {
    GPT model = load_gpt2(path);
    model->eval();
    return {model, Tokenizer::ids(model->options.vocab_size())};
  }
  const fs::path checkpoint = find_checkpoint(path);
  if (!fs::exists(path) && !fs::exists(checkpoint)) {
    throw std::runtime_error(fmt::format("there is no '{}'", path.string()));
  }
  const fs::path run = checkpoint.parent_path();
  if (!fs::exists(checkpoint / kModelFile) || !fs::exists(run / kConfigFile)) {
    throw std::runtime_error(
        fmt::format("'{}' is no model: expected a run of train_gpt with a checkpoint, a checkpoint "
                    "in one, or a GPT-2 with its config.json",
                    path.string()));
  }
  const auto tokenizer = Tokenizer::load(run / kTokenizerFile);
  GPT model = make_gpt(read_config(run), tokenizer.vocab_size());
  load_state_dict(*model, load_safetensors(checkpoint / kModelFile).tensors);
  model->eval();
  return {model, tokenizer};
}

at::Tensor encode_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  if (prompt.empty()) {
    throw std::runtime_error("--prompt: expected at least one character, got none");
  }
  try {
    return tokenizer.encode(prompt).unsqueeze(0);
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format("--prompt: {}", error.what_without_backtrace()));
  }
}

at::Tensor prompt_of_tokens(const Tokenizer& tokenizer, const std::vector<int64_t>& ids) {
  const at::Tensor prompt = torch::tensor(ids).unsqueeze(0);
  try {
    tokenizer.decode(prompt);  // looks at each
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format("--prompt-tokens: {}", error.what_without_backtrace()));
  }
  return prompt;
}

}  // namespace mini::app
