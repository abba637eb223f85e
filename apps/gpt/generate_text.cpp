// SPDX-License-Identifier: MIT
// Generates text with a GPT and writes each character as soon as it is complete.
#include <torch/torch.h>

#include <algorithm>

#include "common/app.h"
#include "common/keep_memory.h"
#include "files/utf8.h"
#include "gpt/run_folder.h"
#include "mini/generate.h"

namespace mini::app {
namespace {

struct Options {
  std::string model;
  std::string prompt;
  bool prompt_given = false;
  std::vector<int64_t> prompt_tokens;
  bool greedy = false;
  std::string full_context = "exact";
  GenerateOptions generate{.new_tokens = 500, .seed = 1337};
};

// Writes text to standard output without delay. Holds back the bytes of an incomplete UTF-8
// character until its last byte arrives.
class CharacterStream {
 public:
  void write(const std::string& bytes) {
    pending_ += bytes;
    const size_t end = whole_characters();
    emit(pending_.substr(0, end));
    pending_.erase(0, end);
  }

  // Writes the bytes of an incomplete character, then a newline unless the text ends in one.
  void finish() {
    emit(pending_);
    pending_.clear();
    if (last_ != '\n') {
      emit("\n");
    }
  }

 private:
  void emit(const std::string& text) {
    if (!text.empty()) {
      write_to_stdout(text);
      last_ = text.back();
    }
  }

  // The number of pending bytes before an incomplete character. Invalid bytes count as complete: a
  // model of bytes can generate them.
  size_t whole_characters() const {
    size_t end = 0;
    while (end < pending_.size()) {
      const auto next = detail::first_character(std::string_view(pending_).substr(end));
      if (next.kind == detail::Utf8::kIncomplete) {
        break;
      }
      end += std::max<size_t>(1, next.length);
    }
    return end;
  }

  std::string pending_;
  char last_ = '\n';
};

// The tokens to continue, (1, T).
at::Tensor prompt_tokens(const Options& options, const Tokenizer& tokenizer) {
  if (options.prompt_given) {
    return encode_prompt(tokenizer, options.prompt);
  }
  if (!options.prompt_tokens.empty()) {
    return prompt_of_tokens(tokenizer, options.prompt_tokens);
  }
  // A newline starts the text. If the vocabulary has none, its first token does.
  try {
    return tokenizer.encode("\n").unsqueeze(0);
  } catch (const c10::Error&) {
    return torch::zeros({1, 1}, torch::kLong);
  }
}

void generate_text(Options options) {
  TrainedModel trained = load_trained_model(options.model);
  const at::Tensor prompt = prompt_tokens(options, trained.tokenizer);
  if (options.greedy) {
    options.generate.temperature = 0.0;
  }
  options.generate.full_context =
      options.full_context == "exact" ? FullContext::kExact : FullContext::kKeepHalf;

  CharacterStream stream;
  const std::string beginning = trained.tokenizer.decode(prompt);
  std::string_view separator;
  if (options.prompt_given || !options.prompt_tokens.empty()) {
    stream.write(beginning);
    separator = trained.tokenizer.separator();
  }
  generate(trained.model, prompt, options.generate, [&](const at::Tensor& next) {
    stream.write(std::string(separator) + trained.tokenizer.decode(next));
    separator = trained.tokenizer.separator();
  });
  stream.finish();
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  mini::GenerateOptions& generation = options.generate;
  CommandLine app("generate_text", "Generates text with a GPT.");
  app.add_option("--model", options.model, kModelHelp)
      ->required()
      ->check(file_name())
      ->type_name("MODEL");
  app.add_option("--prompt", options.prompt, "Text to continue")->default_str("a newline");
  add_list(app, "--prompt-tokens", options.prompt_tokens, "Token ids to continue, such as 1,2,3",
           whole_number())
      ->excludes("--prompt");
  app.add_option("--new-tokens", generation.new_tokens, "Number of tokens to generate")
      ->transform(whole_number());
  app.add_option("--temperature", generation.temperature,
                 "Divisor of the logits: below 1 it favours likely tokens; 0 equals --greedy")
      ->check(number_from_zero());
  app.add_option("--top-k", generation.top_k, "Sample from this many of the likeliest tokens")
      ->default_str("all tokens")
      ->transform(positive_integer());
  app.add_option("--top-p", generation.top_p,
                 "Sample from the fewest likeliest tokens that reach this probability together")
      ->default_str("all tokens")
      ->check(positive_probability());
  app.add_option("--seed", generation.seed, "Seed of the samples")
      ->default_str(std::to_string(*generation.seed))  // CLI11 shows no default for std::optional
      ->transform(seed_number());
  app.add_flag("--greedy", options.greedy,
               "Always choose the likeliest token; --top-k, --top-p and --seed then have no effect")
      ->excludes("--temperature");
  app.add_option(
         "--full-context", options.full_context,
         "Rule for texts longer than the block size: exact recomputes the whole context for "
         "each token, fast drops the older half of the context whenever it is full")
      ->check(one_of({"exact", "fast"}));
  app.footer("Example: generate_text --model run --prompt 'ROMEO:' --temperature 0.8 --top-k 20");
  return app.run(argc, argv, [&] {
    keep_freed_memory();
    options.prompt_given = app.count("--prompt") > 0;
    generate_text(options);
  });
}
