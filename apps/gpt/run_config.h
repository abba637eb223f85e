// SPDX-License-Identifier: MIT
// The settings of a training run. One table serves the command line, config.json and --resume.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/report.h"
#include "mini/gpt.h"

namespace mini::app {

/// Everything that determines a training run.
struct RunConfig {
  std::string data;       // an absolute path, as text: detail::path_of(data) is the path
  std::string init_from;  // the same; empty for random initial weights
  std::string tokenizer = "characters";  // or "bytes", or "model" for the tokenizer of init_from
  int64_t block_size = 64;
  int64_t batch_size = 32;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  std::string scale = "1/sqrt(d_k)";  // of the scores; or "1/d_k", "none" (1), or a number
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

/// A row of the table: one setting of a `RunConfig`.
struct RunSetting {
  std::string name;  ///< in config.json
  std::variant<bool RunConfig::*, int64_t RunConfig::*, uint64_t RunConfig::*, double RunConfig::*,
               std::string RunConfig::*>
      member;
  CLI::Validator check;  ///< of the option, and of the number in config.json
  std::string help;
  std::string type_name = {};     ///< of the option's value; empty for CLI11's name
  std::string default_text = {};  ///< for --help, if the default is not the member's initial value
  bool fixed = true;              ///< --resume cannot change the setting
  bool check_text = false;        ///< `check` also holds for a text in config.json
  bool required = true;           ///< false: a config.json without the setting means its default

  /// "--block-size" for block_size.
  std::string option() const;
};

/// The table, in the order of --help and config.json.
const std::vector<RunSetting>& run_settings();

/// Calls `visit(setting, value)` for each setting, with a reference to its value in `config`.
template <typename Config, typename Visit>
void for_each_setting(Config& config, const Visit& visit) {
  for (const RunSetting& setting : run_settings()) {
    std::visit([&](auto member) { visit(setting, config.*member); }, setting.member);
  }
}

/// The content of config.json.
Json to_json(const RunConfig& config);

/// Reads config.json in the folder `run`. Throws std::runtime_error, with the path and the setting,
/// if a setting is missing, is unknown, has the wrong type, or is a number out of range.
RunConfig read_run_config(const std::filesystem::path& run);

/// The value of the setting `scale` for a model with the factor `scale` on its scores.
std::string scale_text(const std::optional<double>& scale);

/// The GPT of a run, with its initial weights.
GPT untrained_gpt(const RunConfig& config, int64_t vocab_size);

}  // namespace mini::app
