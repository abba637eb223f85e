// SPDX-License-Identifier: MIT
#include <pty.h>

#include <algorithm>
#include <cmath>

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

namespace {

/// Runs a program with a terminal for its standard error, and returns what the terminal got.
std::string on_a_terminal(const std::string& command_line) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const std::string command = "exec >/dev/null; exec '" MINI_APPS "'/" + command_line;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  REQUIRE(child > 0);
  std::string text;
  char bytes[4096];
  for (ssize_t size; (size = ::read(terminal, bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<std::size_t>(size));
  }
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return text;
}

}  // namespace

TEST_CASE("train_gpt makes the folder of a run", "[app][train_gpt]") {
  const TinyFolder folder;
  const Run done = run(folder.train("run", "--steps 12 --eval-every 5 --seed 7"));
  INFO(done.err);
  REQUIRE(done.status == 0);
  CHECK_THAT(done.out, ContainsSubstring("done: step 12 of 12, best val_loss "));
  CHECK_THAT(done.out, ContainsSubstring("to sample: generate_text --model "));
  CHECK(folder.entries() == std::set<std::string>{"run", "text.txt"});
  CHECK(files_of(folder / "run") == std::set<std::string>{"best", "config.json", "last",
                                                          "metrics.jsonl", "tokenizer.json",
                                                          "tokens.safetensors"});

  // Elsewhere than on a terminal: a line for each evaluation, and no others over them.
  CHECK(done.err.find('\r') == std::string::npos);
  CHECK_THAT(done.err, ContainsSubstring("million parameters; "));
  for (const char* line : {"\nstep 5: train_loss ", "\nstep 10: train_loss ", "\nstep 12: "}) {
    CHECK_THAT(done.err, ContainsSubstring(line));
  }
  CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 4);

  const auto config = json::parse(read_file(folder / "run/config.json"));
  CHECK(config["n_layer"] == 2);
  CHECK(config["n_embd"] == 16);
  CHECK(config["seed"] == 7);
  CHECK(config["data"] == (folder / "text.txt").string());
  CHECK(config["beta2"] == 0.99);
  CHECK(config["weight_decay"] == 0.1);
  CHECK(config["clip"] == 1.0);

  const auto lines = folder.metrics("run");
  REQUIRE(lines.size() == 12);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const json& line = lines[i];
    const auto step = static_cast<int64_t>(i) + 1;
    CHECK(line["step"] == step);
    CHECK(line["tokens"] == step * 4 * 8);
    CHECK(line.contains("val_loss") == (step % 5 == 0 || step == 12));
    for (const char* name :
         {"train_loss", "learning_rate", "gradient_norm", "tokens_per_s", "seconds"}) {
      CHECK(line[name].get<double>() > 0);
    }
  }
  const double untrained =
      std::log(json::parse(read_file(folder / "run/tokenizer.json"))["vocabulary"].size());
  CHECK(std::abs(lines[0]["train_loss"].get<double>() - untrained) < 0.2);
}

TEST_CASE("train_gpt's val_loss is that of its checkpoints", "[app][train_gpt]") {
  const TinyFolder folder;
  // A rate so large that the last evaluation is not the best.
  REQUIRE(run(folder.train("run",
                           "--steps 60 --eval-every 5 --dropout 0.3 --learning-rate 0.3 "
                           "--schedule constant"))
              .status == 0);
  const auto tokenizer = mini::Tokenizer::load(folder / "run/tokenizer.json");
  CHECK(tokenizer.decode(mini::read_tokens(folder / "run/tokens.safetensors",
                                           tokenizer.vocab_size())) == tiny_text());
  const at::Tensor validation = mini::split_tokens(tokenizer.encode(tiny_text())).validation;
  mini::GPT model(
      mini::GPTOptions(tokenizer.vocab_size()).block_size(8).n_layer(2).n_head(2).n_embd(16));
  model->eval();
  const auto loss_of = [&](const std::string& checkpoint) {
    mini::load_state_dict(*model, tensors_of(folder / "run" / checkpoint, "model"));
    const at::NoGradGuard no_grad;
    double sum = 0.0;  // one window at a time, in another way than the program's
    for (int64_t begin = 0; begin + 1 < validation.size(0); begin += 8) {
      const int64_t T = std::min<int64_t>(8, validation.size(0) - 1 - begin);
      const at::Tensor logits = model->forward(validation.narrow(0, begin, T).unsqueeze(0))[0];
      sum +=
          at::cross_entropy_loss(logits, validation.narrow(0, begin + 1, T), {}, at::Reduction::Sum)
              .item<double>();
    }
    return sum / static_cast<double>(validation.size(0) - 1);
  };
  const auto lines = folder.metrics("run");
  CHECK(std::abs(loss_of("last") - lines[59]["val_loss"].get<double>()) < 1e-5);
  double best = HUGE_VAL;
  for (const json& line : lines) best = std::min(best, line.value("val_loss", HUGE_VAL));
  CHECK(std::abs(loss_of("best") - best) < 1e-5);
  const auto state = json::parse(read_file(folder / "run/best/state.json"));
  CHECK(state["best_val_loss"] == best);
  CHECK(lines[59]["val_loss"] > best);
  CHECK(saved_step(folder / "run/last") == 60);
  CHECK(lines[static_cast<std::size_t>(saved_step(folder / "run/best")) - 1]["val_loss"] == best);
}

TEST_CASE("train_gpt follows its schedule", "[app][train_gpt]") {
  const TinyFolder folder;
  const auto rates = [&](const std::string& name, const std::string& options) {
    REQUIRE(run(folder.train(name, options)).status == 0);
    std::vector<double> of_steps;
    for (const json& line : folder.metrics(name)) {
      of_steps.push_back(line["learning_rate"].get<double>());
    }
    return torch::tensor(of_steps, at::kDouble);
  };
  CHECK_THAT(rates("cosine",
                   "--steps 12 --learning-rate 1 --min-learning-rate 0.1 --warmup-steps 4 "
                   "--clip 0.01"),
             AllClose(torch::tensor({0.2, 0.4, 0.6, 0.8, 1.0, 0.965746, 0.868198, 0.722208, 0.55,
                                     0.377792, 0.231802, 0.134254},
                                    at::kDouble),
                      0, 5e-7));
  CHECK_THAT(
      rates("constant", "--steps 4 --learning-rate 0.5 --warmup-steps 1 --schedule constant"),
      AllClose(torch::tensor({0.25, 0.5, 0.5, 0.5}, at::kDouble), 0, 1e-12));
  // Warm-up for a tenth of the steps, then down to a tenth of the rate.
  CHECK_THAT(rates("defaults", "--steps 10").index({torch::tensor({0, 1, 9})}),
             AllClose(torch::tensor({5e-4, 1e-3, 1e-4 + 4.5e-4 * (1 + std::cos(M_PI * 8 / 9))},
                                    at::kDouble),
                      0, 1e-12));
}

TEST_CASE("each option of train_gpt has its effect", "[app][train_gpt]") {
  const TinyFolder folder;
  const auto train = [&](const std::string& name, const std::string& options) {
    const Run done = run(folder.train(name, "--steps 3 " + options));
    INFO(done.err);
    REQUIRE(done.status == 0);
    return tensors_of(folder / name / "last", "model");
  };
  const Tensors usual = train("usual", "");
  CHECK(same(train("again", ""), usual));
  for (const std::string option :
       {"--seed 2", "--dropout 0.5", "--weight-decay 50", "--beta1 0.5", "--beta2 0.5",
        "--clip 0.001", "--learning-rate 0.1", "--n-head 4", "--batch-size 5", "--accumulate 2",
        "--gelu-approximate tanh"}) {
    INFO(option);
    CHECK_FALSE(same(train(option, option), usual));
  }

  const Tensors other =
      train("other", "--block-size 12 --n-layer 3 --n-embd 24 --bias --threads 2");
  CHECK(other["transformer.wpe.weight"].sizes() == at::IntArrayRef({12, 24}));
  CHECK(other.contains("transformer.h.2.ln_1.weight"));
  CHECK_FALSE(usual.contains("transformer.h.2.ln_1.weight"));
  CHECK(other.contains("transformer.h.0.ln_1.bias"));
  CHECK_FALSE(usual.contains("transformer.h.0.ln_1.bias"));
  CHECK(json::parse(read_file(folder / "other/config.json"))["threads"] == 2);
  CHECK(folder.metrics("other")[2]["tokens"] == 3 * 4 * 12);

  const Tensors bytes = train("bytes", "--tokenizer bytes");
  CHECK(bytes["transformer.wte.weight"].size(0) == 256);

  // Without clipping the norms are the same, the updates not.
  train("unclipped", "--clip 0");
  CHECK(folder.metrics("unclipped")[0]["gradient_norm"] ==
        folder.metrics("usual")[0]["gradient_norm"]);
}

TEST_CASE("accumulated batches count as one large one", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("large", "--steps 4 --batch-size 12 --clip 0.1")).status == 0);
  REQUIRE(run(folder.train("small", "--steps 4 --batch-size 3 --accumulate 4 --clip 0.1")).status ==
          0);
  const auto large = folder.metrics("large"), small = folder.metrics("small");
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(small[i]["tokens"] == large[i]["tokens"]);
    for (const char* name : {"train_loss", "gradient_norm"}) {
      CHECK(std::abs(small[i][name].get<double>() - large[i][name].get<double>()) < 1e-5);
    }
  }
}

TEST_CASE("two threads train as one does, and always with the same bits", "[app][train_gpt]") {
  const TinyFolder folder;
  for (const std::string dropout : {"0", "0.2"}) {
    INFO("dropout " << dropout);
    const std::string options = "--steps 30 --eval-every 10 --dropout " + dropout + " --threads ";
    REQUIRE(run(folder.train("one" + dropout, options + "1")).status == 0);
    REQUIRE(run(folder.train("two" + dropout, options + "2")).status == 0);
    REQUIRE(run(folder.train("again" + dropout, options + "2")).status == 0);
    check_same_runs(folder, "again" + dropout, "two" + dropout);
    // Gradients that two threads make and then add are rounded otherwise, and only these.
    const auto weights = [&](const std::string& name) {
      return tensors_of(folder / (name + dropout) / "last", "model");
    };
    CHECK(same(weights("two"), weights("one")) == (dropout != "0"));

    const auto one = folder.metrics("one" + dropout), two = folder.metrics("two" + dropout);
    REQUIRE(one.size() == two.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      for (const std::string name : {"train_loss", "gradient_norm"}) {
        CHECK(std::abs(two[i][name].get<double>() - one[i][name].get<double>()) < 1e-4);
      }
    }
  }
}

TEST_CASE("train_gpt refuses what it cannot train on", "[app][train_gpt]") {
  const TinyFolder folder;
  const auto refused = [&](const std::string& data, const std::string& options = "") {
    const Run failed = run("train_gpt --data " + folder.path_of(data) + " --output " +
                           folder.path_of("run") + " --steps 2 " + options);
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_FALSE(fs::exists(folder / "run"));
    CHECK_FALSE(fs::exists(folder / ".run.new"));
    return failed.err;
  };
  write_file(folder / "short.txt", std::string(70, 'a'));
  CHECK_THAT(refused("short.txt"),
             ContainsSubstring("expected more than block_size 64 tokens to train on and at least 2 "
                               "to validate, got 63 and 7"));
  CHECK_THAT(refused("short.txt"), ContainsSubstring((folder / "short.txt").string()));
  write_file(folder / "empty.txt", "");
  CHECK_THAT(refused("empty.txt"), ContainsSubstring("empty.txt' is empty"));
  fs::create_directory(folder / "folder");
  CHECK_THAT(refused("folder"), ContainsSubstring("folder' is not a regular file"));
  CHECK_THAT(refused("none.txt"), ContainsSubstring("none.txt': No such file or directory"));
  write_file(folder / "latin1.txt", tiny_text() +
                                        "gr\xf6\xdf"
                                        "e");
  CHECK_THAT(refused("latin1.txt"),
             ContainsSubstring("expected UTF-8, got an invalid sequence at byte " +
                               std::to_string(tiny_text().size() + 2)));

  write_file(folder / "file", "x");
  const Run taken = run(folder.train("file"));
  CHECK(taken.status == 1);
  CHECK_THAT(taken.err, ContainsSubstring("expected a new folder, got '" +
                                          (folder / "file").string() + "', a file\n"));
  fs::create_directories(folder / "no_run/within");
  CHECK_THAT(run(folder.train("no_run")).err, ContainsSubstring("which is not empty\n"));
  CHECK_THAT(
      run(folder.resume("no_run")).err,
      ContainsSubstring("no_run' is not the folder of a training run: it has no config.json"));
  CHECK(read_file(folder / "file") == "x");
}

TEST_CASE("train_gpt begins with the weights and tokens of a run", "[app][train_gpt]") {
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

  // Its tokenizer, not one made for the text; and as few of its positions as one likes.
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
  CHECK_THAT(error(from_run + "--tokenizer bytes"), ContainsSubstring("text.txt' are one of 256"));
  write_file(folder / "text.txt", std::string(500, 'y'));
  CHECK_THAT(error(from_run), ContainsSubstring("text.txt': Tokenizer: expected one of the "));
  CHECK_THAT(error("--init-from " + folder.path_of("none")),
             ContainsSubstring("there is no " + folder.path_of("none")));
}

TEST_CASE("train_gpt goes on with a GPT-2, on token ids", "[app][train_gpt]") {
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

  // Before the first step its weights are saved, for whoever stops the run there.
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

  // What it has learned is written as token ids.
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

TEST_CASE("train_gpt says when the loss is no number", "[app][train_gpt]") {
  const TinyFolder folder;
  const Run failed =
      run(folder.train("run", "--steps 50 --learning-rate 1e30 --warmup-steps 0 --clip 0"));
  CHECK(failed.status == 1);
  CHECK_THAT(failed.err, ContainsSubstring("expected finite numbers, got loss "));
}

TEST_CASE("train_gpt explains wrong usage in one line", "[app][train_gpt]") {
  const std::string data = "--data a --output b ";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "expected --data and --output, or --resume"},
      {"--data a", "expected --data and --output, or --resume"},
      {"--output b", "expected --data and --output, or --resume"},
      {"--resume a --output b", "--output"},
      {data + "--block-size 0", "--block-size: expected a whole number from 1"},
      {data + "--dropout 1.5", "--dropout: expected a number from 0 to 1, got '1.5'"},
      {data + "--learning-rate 0", "--learning-rate: expected a finite number above 0, got '0'"},
      {data + "--clip -1", "--clip: expected a finite number of at least 0, got '-1'"},
      {data + "--schedule linear", "--schedule: expected cosine or constant, got 'linear'"},
      {data + "--tokenizer words", "--tokenizer: expected characters or bytes, got 'words'"},
      {data + "--gelu-approximate fast", "--gelu-approximate: expected none or tanh, got 'fast'"},
      {data + "--n-head 3 --n-embd 8", "--n-embd 8 is no multiple of --n-head 3"},
      {data + "--beta1 1", "expected a number from 0 to below 1, got '1'"},
      {data + "--beta2 -0.1", "expected a number from 0 to below 1, got '-0.1'"},
      {data + "--steps 5 --warmup-steps 6", "--warmup-steps 6 are more than --steps 5"},
      {data + "--learning-rate 0.1 --min-learning-rate 0.2",
       "--min-learning-rate 0.2 is above --learning-rate 0.1"},
      {data + "--threads 1025", "--threads: expected a whole number from 1 to 1024, got '1025'"},
      {data + "extra", "extra"},
  };
  for (const auto& [options, fragment] : wrong) {
    INFO(options);
    const Run failed = run("train_gpt " + options);
    CHECK(failed.status == 2);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("train_gpt: "));
    CHECK_THAT(failed.err, ContainsSubstring(fragment));
  }
  CHECK_THAT(run("train_gpt --help").out, ContainsSubstring("--eval-every"));
}

TEST_CASE("train_gpt shows one line on a terminal", "[app][train_gpt]") {
  const TinyFolder folder;
  const std::string shown = on_a_terminal(folder.train("run", "--steps 200 --eval-every 100"));
  CHECK_THAT(shown, ContainsSubstring("\rstep "));
  CHECK_THAT(shown, ContainsSubstring(" of 200, loss "));
  CHECK_THAT(shown, ContainsSubstring(" tokens/s, 0:0"));
  CHECK_THAT(shown, ContainsSubstring(" left"));
  CHECK_THAT(shown, ContainsSubstring("\rstep 100: train_loss "));
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 3);  // only these lines stay
}
