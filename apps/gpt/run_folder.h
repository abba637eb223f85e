// SPDX-License-Identifier: MIT
// The folder of a training run: how it was configured, and the model that came out. Models from
// elsewhere are loaded alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/report.h"
#include "files/json_file.h"
#include "mini/gpt.h"
#include "mini/tokenizer.h"

namespace mini::app {

// Names in the folder of a run; its checkpoints are `last` and `best`.
constexpr const char* kConfigFile = "config.json";
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kTokensFile = "tokens.safetensors";
constexpr const char* kMetricsFile = "metrics.jsonl";

/// Whatever decides how a run goes; `config.json` has each by its name, and `train_gpt` an option.
struct RunConfig {
  std::string data;                      // an absolute path
  std::string init_from;                 // an absolute path, or none
  std::string tokenizer = "characters";  // or "bytes", or "model" for that of init_from
  int64_t block_size = 64;
  int64_t batch_size = 32;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  double dropout = 0.0;
  bool bias = false;
  std::string gelu_approximate = "none";
  int64_t steps = 2000;
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  int64_t warmup_steps = 100;
  std::string schedule = "cosine";
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double clip = 1.0;
  int64_t accumulate = 1;
  int64_t eval_every = 250;
  int64_t threads = 1;
  uint64_t seed = 1337;
};

/// Calls `visit` with the name of each setting and a reference to it.
template <typename Config, typename Visit>
void for_each_setting(Config& config, const Visit& visit) {
  visit("data", config.data);
  visit("init_from", config.init_from);
  visit("tokenizer", config.tokenizer);
  visit("block_size", config.block_size);
  visit("batch_size", config.batch_size);
  visit("n_layer", config.n_layer);
  visit("n_head", config.n_head);
  visit("n_embd", config.n_embd);
  visit("dropout", config.dropout);
  visit("bias", config.bias);
  visit("gelu_approximate", config.gelu_approximate);
  visit("steps", config.steps);
  visit("learning_rate", config.learning_rate);
  visit("min_learning_rate", config.min_learning_rate);
  visit("warmup_steps", config.warmup_steps);
  visit("schedule", config.schedule);
  visit("weight_decay", config.weight_decay);
  visit("beta1", config.beta1);
  visit("beta2", config.beta2);
  visit("clip", config.clip);
  visit("accumulate", config.accumulate);
  visit("eval_every", config.eval_every);
  visit("threads", config.threads);
  visit("seed", config.seed);
}

Json to_json(const RunConfig& config);

/// Reads `config.json` of a run. Throws std::runtime_error, with the path and the setting, if one
/// is missing, unknown, of a wrong type or out of range.
RunConfig read_config(const std::filesystem::path& run);

/// The GPT of a run, as it was before training.
GPT make_gpt(const RunConfig& config, int64_t vocab_size);

struct TrainedModel {
  GPT model;
  Tokenizer tokenizer;
};

/// The model of a run's best checkpoint, or of its last one while there is no best; of the
/// checkpoint in a run that `path` names; or of the GPT-2 directory that it names, whose text is
/// token ids. In evaluation mode.
/// Throws std::runtime_error or c10::Error, with the path, if there is none.
TrainedModel load_trained_model(const std::filesystem::path& path);

/// The tokens of the text that came as --prompt, (1, T). Throws std::runtime_error for an empty one
/// and for what the vocabulary does not have.
at::Tensor encode_prompt(const Tokenizer& tokenizer, const std::string& prompt);
/// The token ids that came as --prompt-tokens, (1, T). Throws std::runtime_error for those that the
/// vocabulary does not have.
at::Tensor prompt_of_tokens(const Tokenizer& tokenizer, const std::vector<int64_t>& ids);

}  // namespace mini::app
