// SPDX-License-Identifier: MIT
// Runs of train_gpt that start with the weights of another model.
#include <csignal>

#include "apps/compare_runs.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "mini/gpt.h"
#include "mini/pretrained.h"
#include "mini/state_dict.h"
#include "mini/text.h"
#include "support/support.h"

namespace fs = std::filesystem;
using namespace mini::test;
using nlohmann::json;

TEST_CASE("train_gpt --init-from starts with the weights and tokenizer of a run",
          "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 60 --learning-rate 0.01 --bias")).status == 0);
  const auto continued = [&](const std::string& name, const std::string& options) {
    return run("train_gpt --data " + folder.path_of("text.txt") + " --output " +
               folder.path_of(name) + " --batch-size 4 --threads 1 " + options);
  };
  const std::string from_run = "--init-from " + folder.path_of("run") + " ";
  const Run done = continued("second", from_run + "--steps 1 --learning-rate 1e-9");
  INFO(done.err);
  REQUIRE(done.status == 0);
  CHECK_THAT(done.err, ContainsSubstring("; from '" + (folder / "run").string() + "'\n"));
  const Tensors before = tensors_of(folder / "run/best", "model"),
                after = tensors_of(folder / "second/last", "model");
  CHECK(after.keys() == before.keys());
  for (const auto& item : before) {
    CHECK_THAT(after[item.key()], AllClose(item.value(), 0, 1e-6));
  }
  CHECK(read_file(folder / "second/tokenizer.json") == read_file(folder / "run/tokenizer.json"));
  const auto config = json::parse(read_file(folder / "second/config.json"));
  CHECK(config["init_from"] == (folder / "run").string());
  CHECK(config["bias"] == true);
  CHECK(config["block_size"] == 8);

  // The new run keeps the tokenizer of the old run, and may keep fewer positions.
  write_file(folder / "text.txt", std::string(500, 'o'));
  REQUIRE(continued("third", from_run + "--steps 1 --block-size 5").status == 0);
  CHECK(read_file(folder / "third/tokenizer.json") == read_file(folder / "run/tokenizer.json"));
  CHECK(tensors_of(folder / "third/last", "model")["transformer.wpe.weight"].sizes() ==
        at::IntArrayRef({5, 16}));

  const auto error = [&](const std::string& options) {
    const Run failed = continued("failed", options);
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_FALSE(fs::exists(folder / "failed"));
    return failed.err;
  };
  CHECK_THAT(error(from_run + "--n-layer 3 --block-size 9 --gelu-approximate tanh"),
             ContainsSubstring("run' has another configuration: --block-size is 8 there, 9 here; "
                               "--n-layer is 2 there, 3 here; --gelu-approximate is \"none\" "
                               "there, \"tanh\" here"));
  CHECK_THAT(error(from_run + "--tokenizer bytes"), ContainsSubstring("run' has a vocabulary of "));
  CHECK_THAT(error(from_run + "--tokenizer bytes"), ContainsSubstring("text.txt' have one of 256"));
  write_file(folder / "text.txt", std::string(500, 'y'));
  CHECK_THAT(error(from_run), ContainsSubstring("text.txt': Tokenizer: expected one of the "));
  CHECK_THAT(error("--init-from " + folder.path_of("none")),
             ContainsSubstring("there is no " + folder.path_of("none")));
}

TEST_CASE("the programs compute with a half-precision GPT-2 in float32", "[app][train_gpt]") {
  const TinyFolder folder;
  mini::GPT model(mini::GPTOptions(31).block_size(8).n_layer(1).n_head(2).n_embd(12).bias(true));
  std::string ids;
  for (int i = 0; i < 400; ++i) ids += std::to_string(i % 31) + " ";
  write_file(folder / "ids.txt", ids);
  for (const auto& [name, dtype] : {std::pair("half", at::kHalf), {"bfloat16", at::kBFloat16}}) {
    INFO(name);
    model->to(dtype);
    mini::save_gpt2(folder / name, model);
    const std::string option = " --model " + folder.path_of(name);
    CHECK(run("generate_text --greedy --new-tokens 2 --prompt-tokens 1,2" + option).status == 0);
    CHECK(run("inspect_attention --prompt-tokens 1,2,3" + option).status == 0);
    const Run trained = run("train_gpt --steps 1 --threads 1 --data " + folder.path_of("ids.txt") +
                            " --init-from " + folder.path_of(name) + " --output " +
                            folder.path_of(std::string("run of ") + name));
    INFO(trained.err);
    CHECK(trained.status == 0);
    CHECK(tensors_of(folder / (std::string("run of ") + name + "/last"),
                     "model")["transformer.wte.weight"]
              .scalar_type() == at::kFloat);
    model->to(at::kFloat);
  }
}

TEST_CASE("train_gpt --init-from trains a GPT-2 on token ids", "[app][train_gpt]") {
  const TinyFolder folder;
  const mini::GPT model(mini::GPTOptions(31)
                            .block_size(8)
                            .n_layer(1)
                            .n_head(2)
                            .n_embd(12)
                            .bias(true)
                            .gelu_approximate("tanh"));
  mini::save_gpt2(folder / "gpt2", model);
  std::string ids;
  for (int i = 0; i < 400; ++i) ids += std::to_string(i % 31) + (i % 10 == 9 ? "\n" : " ");
  write_file(folder / "ids.txt", ids);

  // The initial weights are saved before the first step, in case the run ends there.
  Background stopped("train_gpt --data " + folder.path_of("ids.txt") + " --output " +
                     folder.path_of("run") + " --init-from " + folder.path_of("gpt2") +
                     " --threads 1 --batch-size 4 --steps 1000000 --eval-every 1000000");
  wait_for_steps(stopped, folder / "run", 1);
  stopped.send(SIGKILL);
  stopped.finish();
  CHECK(saved_step(folder / "run/last") == 0);
  const Tensors saved = tensors_of(folder / "run/last", "model");
  for (const auto& item : mini::state_dict(*model)) {
    CHECK_THAT(saved[item.key()], Equals(item.value()));
  }
  CHECK_THAT(read_file(folder / "run/config.json"),
             ContainsSubstring("\"gelu_approximate\": \"tanh\""));
  const auto tokenizer = mini::Tokenizer::load(folder / "run/tokenizer.json");
  CHECK(tokenizer.vocab_size() == 31);
  CHECK(mini::read_tokens(folder / "run/tokens.safetensors", 31).size(0) == 400);

  // generate_text writes token ids.
  const Run written = run("generate_text --greedy --new-tokens 2 --prompt-tokens 1,2 --model " +
                          folder.path_of("run"));
  INFO(written.err);
  CHECK(written.status == 0);
  CHECK(written.out.starts_with("1 2 "));
  CHECK_THAT(run("train_gpt --data " + folder.path_of("text.txt") + " --output " +
                 folder.path_of("other") + " --init-from " + folder.path_of("gpt2"))
                 .err,
             ContainsSubstring("text.txt': Tokenizer: expected a token id from 0 to 30, got '"));
}
