// SPDX-License-Identifier: MIT
#include "gpt/run_options.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "common/app.h"

namespace mini::app {
namespace {

// Throws if an option differs from `config`, the configuration of the run or model at `path`.
void check_options(const std::string& path, const RunConfig& config, const RunConfig& given,
                   const CLI::App& app) {
  const Json expected = to_json(config);
  std::vector<std::string> contradictions;
  for_each_setting(given, [&](const RunSetting& setting, const auto& value) {
    const Json& there = expected[setting.name];
    if (setting.fixed && app.count(setting.option()) > 0 && Json(value) != there) {
      contradictions.push_back(fmt::format("{} is {} there, {} here", setting.option(),
                                           there.dump(), Json(value).dump()));
    }
  });
  if (!contradictions.empty()) {
    throw std::runtime_error(
        fmt::format("'{}' has another configuration: {}", path, fmt::join(contradictions, "; ")));
  }
}

}  // namespace

void add_run_options(CLI::App& app, RunConfig& config) {
  for_each_setting(config, [&](const RunSetting& setting, auto& value) {
    if constexpr (std::is_same_v<decltype(value), bool&>) {
      app.add_flag(setting.option(), value, setting.help);
    } else {
      CLI::Option* option =
          app.add_option(setting.option(), value, setting.help)->transform(setting.check);
      if (!setting.type_name.empty()) {
        option->type_name(setting.type_name);
      }
      if (!setting.default_text.empty()) {
        option->default_str(setting.default_text);
      }
    }
  });
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
        fmt::format("--n-embd {} is not a multiple of --n-head {}", config.n_embd, config.n_head));
  }
  return config;
}

RunConfig config_with(const GPTOptions& model, const RunConfig& given, const CLI::App& app) {
  RunConfig config = given;
  config.n_layer = model.n_layer();
  config.n_head = model.n_head();
  config.n_embd = model.n_embd();
  config.bias = model.bias();
  config.scale = scale_text(model.scale());
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
  RunConfig config = read_run_config(run);
  check_options(run, config, given, app);
  if (app.count("--threads") > 0) {
    config.threads = given.threads;
  }
  return config;
}

}  // namespace mini::app
