// SPDX-License-Identifier: MIT
// Text from a GPT, character by character as it comes.
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
  mini::GenerateOptions generate{.new_tokens = 500, .seed = 1337};
};

// Writes text to standard output at once, but a character only when all its bytes are there.
class CharacterStream {
 public:
  void write(const std::string& bytes) {
    pending_ += bytes;
    const size_t end = whole_characters();
    emit(pending_.substr(0, end));
    pending_.erase(0, end);
  }

  // Half a character is written as it is, then a new line unless the text ends in one.
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

  // How many of the bytes to write. Those of no character are among them: a model of bytes may give
  // any.
  size_t whole_characters() const {
    size_t end = 0;
    while (end < pending_.size()) {
      const auto next = mini::detail::first_character(std::string_view(pending_).substr(end));
      if (next.kind == mini::detail::Utf8::kIncomplete) {
        break;
      }
      end += std::max<size_t>(1, next.length);
    }
    return end;
  }

  std::string pending_;
  char last_ = '\n';
};

// The tokens to go on from, (1, T).
at::Tensor prompt_tokens(const Options& options, const mini::Tokenizer& tokenizer) {
  if (options.prompt_given) {
    return encode_prompt(tokenizer, options.prompt);
  }
  if (!options.prompt_tokens.empty()) {
    return prompt_of_tokens(tokenizer, options.prompt_tokens);
  }
  // A line begins, where the vocabulary has lines.
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
      options.full_context == "exact" ? mini::FullContext::kExact : mini::FullContext::kKeepHalf;

  CharacterStream stream;
  const std::string beginning = trained.tokenizer.decode(prompt);
  std::string_view separator;
  if (options.prompt_given || !options.prompt_tokens.empty()) {
    stream.write(beginning);
    separator = trained.tokenizer.separator();
  }
  mini::generate(trained.model, prompt, options.generate, [&](const at::Tensor& next) {
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
  mini::GenerateOptions& generate = options.generate;
  CommandLine app("generate_text", "Writes text with a GPT.");
  app.add_option(
         "--model", options.model,
         "Folder of a run, for its best checkpoint (the last while there is no best), of a "
         "checkpoint in it, or of a GPT-2 (config.json, model.safetensors), whose text is token "
         "ids: '1 2 3'")
      ->required()
      ->check(file_name())
      ->type_name("MODEL");
  app.add_option("--prompt", options.prompt, "Text to go on from (a new line)");
  add_list(app, "--prompt-tokens", options.prompt_tokens, "The same as token ids: 1,2,3",
           whole_number())
      ->excludes("--prompt");
  app.add_option("--new-tokens", generate.new_tokens, "Tokens to write (500)")
      ->transform(whole_number());
  app.add_option("--temperature", generate.temperature,
                 "Below 1 likely tokens become likelier, 0 is --greedy (1)")
      ->check(number_from_zero());
  app.add_option("--top-k", generate.top_k, "Choose among the k likeliest tokens (all)")
      ->transform(positive_integer());
  app.add_option("--top-p", generate.top_p,
                 "Choose among the likeliest tokens that make up this probability (all)")
      ->check(positive_probability());
  app.add_option("--seed", generate.seed, "Seed of the choices (1337)")->transform(seed_number());
  app.add_flag("--greedy", options.greedy, "Always take the likeliest token")
      ->excludes("--temperature");
  app.add_option(
         "--full-context", options.full_context,
         "Beyond the block size: exact computes anew what each token sees, fast forgets the "
         "older half of it now and then (exact)")
      ->check(one_of({"exact", "fast"}));
  app.footer("Example: generate_text --model run --prompt 'ROMEO:' --temperature 0.8 --top-k 20");
  return app.run(argc, argv, [&] {
    keep_freed_memory();
    options.prompt_given = app.count("--prompt") > 0;
    generate_text(options);
  });
}
