// The program of test_pretrained.py: loads a pretrained GPT, then evaluates or saves it.
// SPDX-License-Identifier: MIT

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "command.h"
#include "mini/generate.h"
#include "mini/pretrained.h"
#include "mini/safetensors.h"

namespace {

namespace fs = std::filesystem;

/// Loads a GPT-2 directory, or a nanoGPT's file with `n_head` heads.
mini::GPT load(const fs::path& path, std::int64_t n_head) {
  return fs::is_directory(path) ? mini::load_gpt2(path) : mini::load_nanogpt(path, n_head);
}

/// Reads "tokens" (B, T) and "prompt" from `input`. Writes to `output` the logits of the tokens,
/// the loss over all tokens but the first, its gradients, and a greedy continuation of the prompt.
void evaluate(mini::GPT& model, const fs::path& input, const fs::path& output) {
  const auto given = mini::load_safetensors(input).tensors;
  const at::Tensor tokens = given["tokens"], prompt = given["prompt"];
  const std::int64_t T = tokens.size(1);

  torch::OrderedDict<std::string, at::Tensor> results;
  results.insert("logits", model(tokens));
  const at::Tensor loss = model->loss(tokens.narrow(1, 0, T - 1), tokens.narrow(1, 1, T - 1));
  loss.backward();
  results.insert("loss", loss);
  for (const auto& parameter : model->named_parameters()) {
    results.insert("gradient of " + parameter.key(), parameter.value().grad());
  }
  results.insert("greedy", mini::generate(model, prompt, {.new_tokens = 20, .temperature = 0.0}));
  mini::save_safetensors(output, results);
}

void run(const std::vector<std::string>& arguments) {  // COMMAND MODEL N_HEAD ...
  const std::string& command = arguments.at(0);
  mini::GPT model = load(arguments.at(1), std::stoll(arguments.at(2)));
  if (command == "evaluate") {  // INPUT OUTPUT
    evaluate(model, arguments.at(3), arguments.at(4));
  } else if (command == "save-gpt2") {  // DIRECTORY
    mini::save_gpt2(arguments.at(3), model);
  } else if (command == "save-nanogpt") {  // FILE
    mini::save_nanogpt(arguments.at(3), model);
  } else {
    throw std::invalid_argument("no command " + command);
  }
}

}  // namespace

int main(int argc, char** argv) { return mini::test::run_command(argc, argv, run); }
