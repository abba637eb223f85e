// SPDX-License-Identifier: MIT
#include "gpt/training.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <torch/torch.h>

#include <cerrno>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "files/atomic_folder.h"
#include "files/json_file.h"
#include "files/path_text.h"
#include "mini/state_dict.h"

namespace mini::app {
namespace {

namespace fs = std::filesystem;

torch::optim::AdamWOptions adamw_options(const RunConfig& config) {
  return torch::optim::AdamWOptions(config.learning_rate)
      .betas({config.beta1, config.beta2})
      .weight_decay(config.weight_decay);
}

ScheduleOptions schedule_options(const RunConfig& config) {
  ScheduleOptions options{.warmup_steps = config.warmup_steps,
                          .min_factor = config.min_learning_rate / config.learning_rate};
  if (config.schedule == "cosine") {
    options.decay_end = config.steps;
  }
  return options;
}

TokenSplit split(const RunConfig& config, const at::Tensor& tokens) {
  const TokenSplit parts = split_tokens(tokens);
  const int64_t train = parts.train.size(0), validation = parts.validation.size(0);
  if (train <= config.block_size || validation < 2) {
    throw std::runtime_error(
        fmt::format("'{}' is too short: expected more than block_size {} training tokens and at "
                    "least 2 validation tokens, got {} and {}",
                    config.data, config.block_size, train, validation));
  }
  return parts;
}

// The settings that a checkpoint and the run that loads it must share.
std::map<std::string, std::string> fixed_settings(const Training& training) {
  const int64_t tokens = training.tokens.train.size(0) + training.tokens.validation.size(0);
  std::map<std::string, std::string> settings = {
      {"vocab_size", std::to_string(training.tokenizer.vocab_size())},
      {"tokens", std::to_string(tokens)}};
  for_each_setting(training.config, [&](const RunSetting& setting, const auto& value) {
    if (setting.fixed) {
      settings[setting.name] = Json(value).dump();
    }
  });
  return settings;
}

const at::Tensor& saved_generator(const TrainingState& state, const std::string& name) {
  const auto found = state.generators.find(name);
  if (found == state.generators.end()) {
    throw std::runtime_error(fmt::format("the checkpoint has no state of the {} generator", name));
  }
  return found->second;
}

Tokenizer make_tokenizer(const RunConfig& config, std::string_view text,
                         const std::optional<TrainedModel>& init) {
  if (config.tokenizer == "model") {
    return init->tokenizer;
  }
  if (config.tokenizer == "bytes") {
    return Tokenizer::bytes();
  }
  try {
    return Tokenizer::characters(text);
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format("'{}': {} (--tokenizer bytes accepts any file)",
                                         config.data, error.what_without_backtrace()));
  }
}

// Throws with the path of the text if a tokenizer made for another text does not know its tokens.
void write_tokens_of(const RunConfig& config, const fs::path& path, std::string_view text,
                     const Tokenizer& tokenizer) {
  try {
    write_tokens(path, text, tokenizer);
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format("'{}': {}", config.data, error.what_without_backtrace()));
  }
}

void check_vocabulary(const RunConfig& config, int64_t vocab_size, const GPT& model) {
  if (vocab_size != model->options.vocab_size()) {
    throw std::runtime_error(fmt::format(
        "'{}' has a vocabulary of {}, but the {} of '{}' have one of {}", config.init_from,
        model->options.vocab_size(), config.tokenizer, config.data, vocab_size));
  }
}

void check_is_new(const fs::path& run) {
  if (fs::exists(run) && !fs::is_directory(run)) {
    throw std::runtime_error(fmt::format("expected a new folder, got '{}', a file", run.string()));
  }
  if (fs::exists(run) && !fs::is_empty(run)) {
    const std::string hint =
        fs::exists(run / kConfigFile)
            ? fmt::format(" (train_gpt --resume {} resumes the run)", run.string())
            : "";
    throw std::runtime_error(
        fmt::format("expected a new folder, got '{}', which is not empty{}", run.string(), hint));
  }
}

void copy_weights(const GPT& from, GPT& to) {
  auto tensors = state_dict(*from);
  at::Tensor& positions = tensors["transformer.wpe.weight"];
  positions = positions.narrow(0, 0, to->options.block_size());
  load_state_dict(*to, tensors);
}

}  // namespace

Training::Training(const fs::path& run, const RunConfig& config_)
    : config(config_),
      tokenizer(Tokenizer::load(run / kTokenizerFile)),
      tokens(split(config, read_tokens(run / kTokensFile, tokenizer.vocab_size()))),
      // Weights, windows and dropout each have their own seed.
      model(untrained_gpt(config, tokenizer.vocab_size())),
      windows(tokens.train, config.batch_size, config.block_size, config.seed + 1),
      optimizer(decay_groups(*model, adamw_options(config)), adamw_options(config)),
      schedule(optimizer, schedule_options(config)) {
  torch::manual_seed(config.seed + 2);
  at::set_num_threads(static_cast<int>(config.threads));
  state.config = fixed_settings(*this);
}

void Training::save(const fs::path& path) {
  state.generators = {{"dropout", at::detail::getDefaultCPUGenerator().get_state()},
                      {"windows", windows.generator().get_state()}};
  save_checkpoint(path, *model, optimizer, state);
}

void Training::load(const fs::path& path) {
  state = load_checkpoint(path, *model, optimizer, state.config);
  schedule.set_current_step(state.step);
  at::Generator dropout = at::detail::getDefaultCPUGenerator();
  dropout.set_state(saved_generator(state, "dropout"));
  windows.generator().set_state(saved_generator(state, "windows"));
}

std::unique_ptr<Training> begin_run(const fs::path& run, const RunConfig& config,
                                    const std::optional<TrainedModel>& init) {
  check_is_new(run);
  const TextFile file(detail::path_of(config.data));
  const std::string_view text = config.tokenizer == "bytes" ? file.bytes() : file.text();
  const Tokenizer tokenizer = make_tokenizer(config, text, init);
  if (init) {
    check_vocabulary(config, tokenizer.vocab_size(), init->model);
  }
  fs::create_directories(fs::absolute(run).parent_path());
  detail::AtomicFolder folder(run);
  check_is_new(run);  // another process may have created it since the first check
  detail::write_json(folder.path() / kConfigFile, to_json(config));
  tokenizer.save(folder.path() / kTokenizerFile);
  write_tokens_of(config, folder.path() / kTokensFile, text, tokenizer);
  auto training = std::make_unique<Training>(folder.path(), config);
  if (init) {
    copy_weights(init->model, training->model);
    training->save(folder.path() / "last");  // the configuration cannot reproduce these weights
  }
  folder.commit();
  return training;
}

std::unique_ptr<Training> resume_run(const fs::path& run, const RunConfig& config) {
  auto training = std::make_unique<Training>(run, config);
  if (fs::exists(detail::AtomicFolder::find(run / "last"))) {
    training->load(run / "last");
  } else if (fs::exists(detail::AtomicFolder::find(run / "best"))) {
    training->load(run / "best");
    training->save(run / "last");
  }
  return training;
}

RunLock::RunLock(const fs::path& run)
    : descriptor_(::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // If the file system has no locks, flock fails with another error, and training is allowed.
  if (::flock(descriptor_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw std::runtime_error(fmt::format("another train_gpt works in '{}'", run.string()));
  }
}

}  // namespace mini::app
