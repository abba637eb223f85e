// SPDX-License-Identifier: MIT
#include "gpt/run_options.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "common/app.h"

namespace mini::app {
namespace {

// "--block-size" of "block_size".
std::string option_name(std::string setting) {
  std::replace(setting.begin(), setting.end(), '_', '-');
  return "--" + setting;
}

// Throws if an option says something else than the configuration that `path` has.
void check_options(const std::string& path, const RunConfig& config, const RunConfig& given,
                   const CLI::App& app) {
  const Json there = to_json(config);
  std::vector<std::string> contradictions;
  for_each_setting(given, [&](const std::string& name, const auto& value) {
    const bool said = app.count(option_name(name)) > 0 && name != "threads";
    if (said && Json(value) != there[name]) {
      contradictions.push_back(fmt::format("{} is {} there, {} here", option_name(name),
                                           there[name].dump(), Json(value).dump()));
    }
  });
  if (!contradictions.empty()) {
    throw std::runtime_error(
        fmt::format("'{}' has another configuration: {}", path, fmt::join(contradictions, "; ")));
  }
}

}  // namespace

void add_run_options(CLI::App& app, RunConfig& config) {
  const auto whole = [&](const char* name, int64_t& value, const char* help) {
    app.add_option(name, value, help)->transform(positive_integer());
  };
  app.add_option("--data", config.data, "Text file: 90 % of it to train on, the rest to validate")
      ->check(file_name())
      ->type_name("FILE");
  app.add_option("--init-from", config.init_from,
                 "Begin with this model's weights, sizes and tokens: a run, a checkpoint, or a "
                 "GPT-2 (config.json, model.safetensors), whose text is token ids")
      ->check(file_name())
      ->type_name("MODEL");
  app.add_option("--tokenizer", config.tokenizer, "Tokens: characters or bytes (characters)")
      ->check(one_of({"characters", "bytes"}));
  whole("--block-size", config.block_size, "Tokens in a window, T (64)");
  whole("--batch-size", config.batch_size, "Windows in a batch, B (32)");
  whole("--n-layer", config.n_layer, "Blocks (4)");
  whole("--n-head", config.n_head, "Heads of each block (4)");
  whole("--n-embd", config.n_embd, "Width of the model, C (128)");
  app.add_option("--dropout", config.dropout, "Probability of dropout while training (0)")
      ->check(probability());
  app.add_flag("--bias", config.bias, "Give layer norms and linear layers a bias");
  app.add_option("--gelu-approximate", config.gelu_approximate,
                 "Activation: none for GELU, or tanh for GPT-2's approximation to it (none)")
      ->check(one_of({"none", "tanh"}));
  whole("--steps", config.steps, "Updates to make (2000)");
  app.add_option("--learning-rate", config.learning_rate, "Learning rate after warm-up (0.001)")
      ->check(positive_number());
  app.add_option("--min-learning-rate", config.min_learning_rate,
                 "Learning rate at the end (a tenth of --learning-rate)")
      ->check(number_from_zero());
  app.add_option("--warmup-steps", config.warmup_steps,
                 "Steps of linear warm-up (100, in a short run a tenth of --steps)")
      ->transform(whole_number());
  app.add_option("--schedule", config.schedule,
                 "Learning rate after warm-up: cosine or constant (cosine)")
      ->check(one_of({"cosine", "constant"}));
  app.add_option("--weight-decay", config.weight_decay, "Weight decay of the matrices (0.1)")
      ->check(number_from_zero());
  app.add_option("--beta1", config.beta1, "AdamW's memory of gradients (0.9)")->check(decay_rate());
  app.add_option("--beta2", config.beta2, "AdamW's memory of their squares (0.99)")
      ->check(decay_rate());
  app.add_option("--clip", config.clip, "Largest norm of the gradient; 0 for any (1)")
      ->check(number_from_zero());
  whole("--accumulate", config.accumulate, "Batches in an update (1)");
  whole("--eval-every", config.eval_every, "Steps between evaluations and checkpoints (250)");
  app.add_option("--threads", config.threads, "Processor threads (LibTorch's choice)")
      ->transform(thread_count());
  app.add_option("--seed", config.seed, "Seed of weights, windows and dropout (1337)")
      ->transform(seed_number());
}

RunConfig new_config(const RunConfig& given, const CLI::App& app) {
  RunConfig config = given;
  if (app.count("--threads") == 0) {
    config.threads = at::get_num_threads();
  }
  if (app.count("--min-learning-rate") == 0) {
    config.min_learning_rate = config.learning_rate / 10;
  }
  if (app.count("--warmup-steps") == 0) {
    config.warmup_steps = std::min(config.warmup_steps, config.steps / 10);
  }
  if (config.min_learning_rate > config.learning_rate) {
    throw UsageError(fmt::format("--min-learning-rate {} is above --learning-rate {}",
                                 config.min_learning_rate, config.learning_rate));
  }
  if (config.warmup_steps > config.steps) {
    throw UsageError(fmt::format("--warmup-steps {} are more than --steps {}", config.warmup_steps,
                                 config.steps));
  }
  if (config.n_embd % config.n_head != 0) {
    throw UsageError(
        fmt::format("--n-embd {} is no multiple of --n-head {}", config.n_embd, config.n_head));
  }
  return config;
}

RunConfig config_with(const GPTOptions& model, const RunConfig& given, const CLI::App& app) {
  RunConfig config = given;
  config.n_layer = model.n_layer();
  config.n_head = model.n_head();
  config.n_embd = model.n_embd();
  config.bias = model.bias();
  config.gelu_approximate = model.gelu_approximate();
  if (app.count("--block-size") == 0 || given.block_size > model.block_size()) {
    config.block_size = model.block_size();
  }
  check_options(given.init_from, config, given, app);
  if (app.count("--tokenizer") == 0) {
    config.tokenizer = "model";
  }
  return config;
}

RunConfig resumed_config(const std::string& run, const RunConfig& given, const CLI::App& app) {
  RunConfig config = read_config(run);
  check_options(run, config, given, app);
  if (app.count("--threads") > 0) {
    config.threads = given.threads;
  }
  return config;
}

}  // namespace mini::app
