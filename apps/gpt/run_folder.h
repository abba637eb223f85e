// SPDX-License-Identifier: MIT
// The folder of a training run: its file names, and loading the trained model. The same function
// loads models of other origin.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mini/gpt.h"
#include "mini/tokenizer.h"

namespace mini::app {

// File names in the folder of a run. Its checkpoints are the folders `last` and `best`.
constexpr const char* kConfigFile = "config.json";
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kTokensFile = "tokens.safetensors";
constexpr const char* kMetricsFile = "metrics.jsonl";

/// Help for the option --model, whose value goes to `load_trained_model`.
constexpr const char* kModelHelp =
    "Folder of a run (for its best checkpoint, or its last if there is no best yet), of a "
    "checkpoint, or of a GPT-2 (config.json, model.safetensors). For a GPT-2, write the text as "
    "token ids: '1 2 3'";

struct TrainedModel {
  GPT model;
  Tokenizer tokenizer;
};

/// Loads a model in evaluation mode. `path` is one of
/// - the folder of a run, for its checkpoint `best`, or `last` if the run has no `best` yet;
/// - a checkpoint in the folder of a run;
/// - the folder of a GPT-2, whose tokenizer reads and writes token ids.
///
/// Throws std::runtime_error or c10::Error, with the path, if `path` is none of these.
TrainedModel load_trained_model(const std::filesystem::path& path);

/// The tokens of the text given as --prompt, (1, T). Throws std::runtime_error if the text is empty
/// or is not in the vocabulary.
at::Tensor encode_prompt(const Tokenizer& tokenizer, const std::string& prompt);

/// The token ids given as --prompt-tokens, (1, T). Throws std::runtime_error if an id is not in the
/// vocabulary.
at::Tensor prompt_of_tokens(const Tokenizer& tokenizer, const std::vector<int64_t>& ids);

}  // namespace mini::app
