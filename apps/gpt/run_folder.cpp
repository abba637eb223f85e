// SPDX-License-Identifier: MIT
#include "gpt/run_folder.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <stdexcept>

#include "files/atomic_folder.h"
#include "files/json_file.h"
#include "gpt/run_config.h"
#include "mini/pretrained.h"
#include "mini/safetensors.h"
#include "mini/state_dict.h"

namespace mini::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";

// The config.json of a run has no model_type.
bool is_gpt2(const fs::path& path) {
  return fs::exists(path / kConfigFile) &&
         detail::read_json(path / kConfigFile).contains("model_type");
}

// `path` itself if it is a checkpoint, or the checkpoint of the run `path`.
fs::path find_checkpoint(const fs::path& path) {
  if (!fs::exists(path / kConfigFile)) {
    return detail::AtomicFolder::find(path);
  }
  const fs::path best = detail::AtomicFolder::find(path / "best");
  return fs::exists(best) ? best : detail::AtomicFolder::find(path / "last");
}

}  // namespace

TrainedModel load_trained_model(const fs::path& path) {
  if (is_gpt2(path)) {
    GPT model = load_gpt2(path, {.convert_dtype = true});  // the programs compute in float32
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
        fmt::format("'{}' is not a model: expected the folder of a run with a checkpoint, a "
                    "checkpoint in it, or a GPT-2 with its config.json",
                    path.string()));
  }
  const auto tokenizer = Tokenizer::load(run / kTokenizerFile);
  GPT model = untrained_gpt(read_run_config(run), tokenizer.vocab_size());
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
    tokenizer.decode(prompt);  // checks each id
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format("--prompt-tokens: {}", error.what_without_backtrace()));
  }
  return prompt;
}

}  // namespace mini::app
