// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include <algorithm>

#include "apps/program.h"
#include "apps/tiny_run.h"
#include "files/utf8.h"
#include "mini/generate.h"
#include "mini/pretrained.h"
#include "mini/safetensors.h"
#include "support/support.h"

namespace fs = std::filesystem;
using namespace mini::test;

namespace {

const std::string kUsual = "--steps 150 --learning-rate 0.02";

/// A folder with a run, trained on a text in which each character has only one successor.
struct AlphabetFolder : TinyFolder {
  explicit AlphabetFolder(const std::string& alphabet, const std::string& options = kUsual) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += alphabet;
    write_file(*this / "text.txt", text);
    const Run trained = run(train("run", options));
    INFO(trained.err);
    REQUIRE(trained.status == 0);
  }

  std::string command(const std::string& options = "") const {
    return "generate_text --model " + path_of("run") + " " + options;
  }
};

/// The output of a program, in the pieces that read() returned.
std::vector<std::string> pieces_of_output(const std::string& command_line) {
  FILE* pipe = ::popen(("exec '" MINI_APPS "'/" + command_line).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::vector<std::string> pieces;
  char bytes[4096];
  for (ssize_t size; (size = ::read(::fileno(pipe), bytes, sizeof bytes)) > 0;) {
    pieces.emplace_back(bytes, static_cast<std::size_t>(size));
  }
  CHECK(::pclose(pipe) == 0);
  return pieces;
}

/// Whether `text` consists of complete UTF-8 characters.
bool is_whole(std::string_view text) {
  while (!text.empty()) {
    const auto next = mini::detail::first_character(text);
    if (next.kind != mini::detail::Utf8::kCharacter) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

}  // namespace

TEST_CASE("generate_text continues a prompt", "[app][generate_text]") {
  const AlphabetFolder folder("abcé\n");
  const Run greedy = run(folder.command("--prompt bc --new-tokens 8 --greedy"));
  CHECK(greedy.status == 0);
  CHECK(greedy.err.empty());
  CHECK(greedy.out == "bcé\nabcé\na\n");  // the program adds the last newline

  // Without a prompt the text starts after a newline, which is not printed.
  CHECK(run(folder.command("--new-tokens 5 --greedy")).out == "abcé\n");
  CHECK(run(folder.command("--new-tokens 0")).out.empty());
  // Ids are ordered by code point: \n, a, b, c, é.
  CHECK(run(folder.command("--prompt-tokens 2,3 --new-tokens 8 --greedy")).out == greedy.out);
  CHECK(run(folder.command("--prompt bc --new-tokens 8 --temperature 0")).out == greedy.out);
  CHECK(run(folder.command("--prompt bc --new-tokens 8 --top-k 1 --temperature 3")).out ==
        greedy.out);
  CHECK(run(folder.command("--prompt bc --new-tokens 8 --top-p 0.01 --temperature 3")).out ==
        greedy.out);
  CHECK(run(folder.command("--prompt bc --new-tokens 8 --greedy --top-k 2 --top-p 0.5 --seed 3"))
            .out == greedy.out);
  CHECK(run(folder.command("--greedy")).out.size() == 100 * std::string("abcé\n").size());

  // The samples depend only on the seed.
  const std::string hot = "--temperature 20 --new-tokens 60 ";
  const std::string first = run(folder.command(hot)).out;
  CHECK(run(folder.command(hot)).out == first);
  CHECK(run(folder.command(hot + "--seed 1337")).out == first);
  CHECK(run(folder.command(hot + "--seed 1")).out != first);
}

TEST_CASE("generate_text --full-context selects the rule beyond the block size",
          "[app][generate_text]") {
  const AlphabetFolder folder("abcé\n", "--steps 1");
  // Random weights, so that the whole context affects each token.
  const fs::path path = folder / "run/best/model.safetensors";
  auto file = mini::load_safetensors(path);
  torch::manual_seed(1);
  for (auto& item : file.tensors) item.value() = at::randn_like(item.value());
  mini::save_safetensors(path, file.tensors, file.metadata);

  const auto text = [&](const std::string& options) {
    const Run done = run(folder.command("--temperature 5 --prompt abc --new-tokens 60 " + options));
    CHECK(done.status == 0);
    return done.out;
  };
  CHECK(text("--full-context exact") == text(""));
  CHECK(text("--full-context fast") != text(""));
  CHECK(text("--full-context fast").substr(0, 8) == text("").substr(0, 8));
}

TEST_CASE("generate_text loads the best checkpoint of a run, or the given checkpoint",
          "[app][generate_text]") {
  const AlphabetFolder folder("abc\n");
  fs::copy(folder / "run", folder / "copy", fs::copy_options::recursive);
  // Replaces the last checkpoint by one after a single step.
  REQUIRE(run(folder.train("fresh", "--steps 1")).status == 0);
  fs::remove_all(folder / "run/last");
  fs::copy(folder / "fresh/last", folder / "run/last");

  const std::string options = " --greedy --new-tokens 8";
  CHECK(run(folder.command(options)).out == "abc\nabc\n");
  CHECK(run("generate_text --model " + folder.path_of("run/best") + options).out == "abc\nabc\n");
  CHECK(run("generate_text --model " + folder.path_of("run/last") + options).out != "abc\nabc\n");
  CHECK(run("generate_text --model " + folder.path_of("copy/last/") + options).out == "abc\nabc\n");
  fs::remove_all(folder / "copy/best");
  CHECK(run("generate_text --model " + folder.path_of("copy") + options).out == "abc\nabc\n");
}

TEST_CASE("generate_text reads and writes token ids for a GPT-2", "[app][generate_text]") {
  const TemporaryFolder folder;
  mini::GPT model(mini::GPTOptions(101).block_size(16).n_layer(1).n_head(2).n_embd(8).seed(1));
  mini::save_gpt2(folder / "gpt2", model);
  const at::Tensor tokens =
      mini::generate(model, torch::tensor({{7, 100, 3}}), {.new_tokens = 5, .temperature = 0.0});
  std::string expected;
  for (int64_t i = 0; i < 8; ++i) {
    expected += std::to_string(tokens[0][i].item<int64_t>()) + (i < 7 ? " " : "\n");
  }
  const std::string command =
      "generate_text --model '" + (folder / "gpt2").string() + "' --greedy --new-tokens 5 ";
  const Run given_ids = run(command + "--prompt-tokens 7,100,3");
  INFO(given_ids.err);
  CHECK(given_ids.status == 0);
  CHECK(given_ids.out == expected);
  CHECK(run(command + "--prompt '7 100 3'").out == expected);
  const std::string unprompted = run(command).out;
  CHECK(std::count(unprompted.begin(), unprompted.end(), ' ') == 4);
  CHECK(unprompted.front() != ' ');

  const auto error = [&](const std::string& options) {
    const Run failed = run(command + options);
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    return failed.err;
  };
  CHECK_THAT(error("--prompt-tokens 7,101"),
             ContainsSubstring("expected token ids from 0 to 100, got 101"));
  CHECK_THAT(error("--prompt ROMEO"),
             ContainsSubstring("expected a token id from 0 to 100, got 'ROMEO' at byte 0"));
  write_file(folder / "gpt2/config.json", R"({"model_type": "llama"})");
  CHECK_THAT(error(""),
             ContainsSubstring("gpt2/config.json': model_type: expected gpt2, got llama"));
  fs::remove(folder / "gpt2/config.json");
  CHECK_THAT(error(""),
             ContainsSubstring("gpt2' is not a model: expected the folder of a run with a "
                               "checkpoint, a checkpoint in it, or a GPT-2 with its config.json"));
}

TEST_CASE("generate_text writes each character as soon as it is complete", "[app][generate_text]") {
  const AlphabetFolder folder("aé€😀\n",
                              "--tokenizer bytes --block-size 16 --steps 250 --learning-rate 0.02");
  const auto pieces = pieces_of_output(folder.command("--prompt a --new-tokens 219 --greedy"));
  std::string text;
  for (const std::string& piece : pieces) {
    CHECK(is_whole(piece));
    text += piece;
  }
  CHECK(pieces.size() > 5);  // not all at once
  CHECK_THAT(text, ContainsSubstring("aé€😀\naé€😀\naé€😀\n"));
  CHECK(text.size() == 220);
}

TEST_CASE("generate_text explains errors in one line", "[app][generate_text]") {
  const AlphabetFolder folder("abc\n", "--steps 1");
  const std::vector<std::pair<std::string, std::string>> failures = {
      {"--prompt aéb",
       "--prompt: Tokenizer: expected one of the 4 characters of the vocabulary, got 'é' (U+00E9) "
       "at byte 1"},
      {"--prompt ''", "--prompt: expected at least one character, got none"},
      {"--prompt $(printf 'a\\377')", "expected UTF-8, got an invalid sequence at byte 1"},
      {"--prompt-tokens 1,4",
       "--prompt-tokens: Tokenizer::decode: expected token ids from 0 to 3, got 4"},
      {"--prompt a >/dev/full", "cannot write to standard output: No space left"},
  };
  for (const auto& [options, fragment] : failures) {
    INFO(options);
    const Run failed = run(folder.command(options));
    CHECK(failed.status == 1);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("generate_text: "));
    CHECK_THAT(failed.err, ContainsSubstring(fragment));
  }
  CHECK_THAT(run("generate_text --model " + folder.path_of("none")).err,
             ContainsSubstring("there is no " + folder.path_of("none")));
  CHECK(run("generate_text --model " + folder.path_of("none")).status == 1);

  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--prompt a --prompt-tokens 1", "--prompt"},
      {"--greedy --temperature 1", "--temperature"},
      {"--temperature -1", "--temperature: expected a finite number of at least 0, got '-1'"},
      {"--top-k 0", "--top-k: expected a whole number from 1 to 2^31 - 1, got '0'"},
      {"--top-p 0", "--top-p: expected a number above 0, at most 1, got '0'"},
      {"--top-p 1.1", "--top-p: expected a number above 0, at most 1, got '1.1'"},
      {"--prompt-tokens 1,-2", "--prompt-tokens: expected a whole number from 0"},
      {"--prompt-tokens 1,,2", "--prompt-tokens: expected a whole number from 0"},
      {"--new-tokens -1", "--new-tokens: expected a whole number from 0"},
      {"--full-context slow", "--full-context: expected exact or fast, got 'slow'"},
  };
  for (const auto& [options, fragment] : wrong) {
    INFO(options);
    const Run failed = run(folder.command(options));
    CHECK(failed.status == 2);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring(fragment));
  }
  CHECK(run("generate_text").status == 2);  // without a model
  CHECK_THAT(run("generate_text --help").out,
             ContainsSubstring("Seed of the samples (default: 1337)\n"));

  fs::resize_file(folder / "run/best/model.safetensors", 100);
  const Run cut = run(folder.command());
  CHECK(cut.status == 1);
  CHECK_THAT(cut.err, ContainsSubstring("run/best/model.safetensors: "));
}
