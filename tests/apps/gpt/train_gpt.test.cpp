// SPDX-License-Identifier: MIT
// New runs of train_gpt: their files, measurements and weights.
#include <algorithm>
#include <cmath>

#include "apps/compare_runs.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "mini/gpt.h"
#include "mini/state_dict.h"
#include "mini/text.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

TEST_CASE("train_gpt creates the folder of a run", "[app][train_gpt]") {
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

  // Standard error is not a terminal: one line for each evaluation, and no progress line.
  CHECK(done.err.find('\r') == std::string::npos);
  CHECK_THAT(done.err, ContainsSubstring(" parameters; "));
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

TEST_CASE("train_gpt --scale sets the factor on the scores", "[app][train_gpt]") {
  const TinyFolder folder;  // d_k is 8
  const auto losses = [&](const std::string& name, const std::string& options) {
    const Run done = run(folder.train(name, "--steps 4 --eval-every 4 " + options));
    INFO(done.err);
    REQUIRE(done.status == 0);
    std::vector<double> of_steps;
    for (const json& line : folder.metrics(name)) {
      of_steps.push_back(line["train_loss"].get<double>());
    }
    return of_steps;
  };
  const auto setting = [&](const std::string& name) {
    return json::parse(read_file(folder / name / "config.json"))["scale"];
  };
  const auto root = losses("root", "");
  const auto none = losses("none", "--scale none");
  const auto linear = losses("linear", "--scale 1/d_k");
  CHECK(setting("root") == "1/sqrt(d_k)");
  CHECK(setting("none") == "none");
  CHECK(none != root);
  CHECK(linear != root);
  CHECK(losses("number", "--scale 0.1250") == linear);
  CHECK(setting("number") == "0.125");
  CHECK(losses("one", "--scale 1") == none);

  for (const char* wrong : {"0", "-1", "nan", "inf", "d_k"}) {
    const Run refused = run(folder.train("wrong", std::string("--scale ") + wrong));
    CHECK(refused.status == 2);
    CHECK_THAT(refused.err,
               ContainsSubstring("--scale: expected 1/sqrt(d_k), 1/d_k, none or a finite number "
                                 "above 0, got '" +
                                 std::string(wrong) + "'"));
  }
  const Run other = run(folder.resume("none") + " --scale 1/d_k");
  CHECK(other.status == 1);
  CHECK_THAT(other.err, ContainsSubstring("--scale is \"none\" there, \"1/d_k\" here"));

  // The programs use the model's own scale.
  const auto inspect = [&](const std::string& name) {
    const Run done = run("inspect_attention --prompt 'to be' --model " + folder.path_of(name));
    REQUIRE(done.status == 0);
    return done.out;
  };
  CHECK_THAT(inspect("root"), ContainsSubstring("divided by 2.83\n"));
  CHECK_THAT(inspect("linear"), ContainsSubstring("divided by 8.00\n"));
  CHECK_THAT(inspect("none"), ContainsSubstring("divided by 2.83\n") &&
                                  ContainsSubstring("\nThe model does not divide its scores."));
  const auto inspect_json = [&](const std::string& name) {
    return run_json("inspect_attention --prompt 'to be' --model " + folder.path_of(name));
  };
  CHECK(inspect_json("root")["divisor"] == std::sqrt(8.0));
  CHECK(inspect_json("root")["undivided"] == false);
  CHECK(inspect_json("linear")["divisor"] == 8.0);
  CHECK(inspect_json("none")["undivided"] == true);
  const auto inspect_as = [&](const std::string& format, const std::string& name) {
    return run("inspect_attention --prompt 'to be' --format " + format + " --model " +
               folder.path_of(name))
        .out;
  };
  CHECK_THAT(inspect_as("csv", "linear"), ContainsSubstring("\n0,0,8,"));
  CHECK_THAT(inspect_as("csv", "root"), ContainsSubstring("\n0,0,sqrt(head_size),"));
  CHECK_THAT(inspect_as("html", "linear"), ContainsSubstring(R"("divided":"8")"));
  CHECK_THAT(run("train_gpt --data " + folder.path_of("text.txt") + " --output " +
                 folder.path_of("more") + " --scale none --init-from " + folder.path_of("linear"))
                 .err,
             ContainsSubstring("--scale is \"0.125\" there, \"none\" here"));
}

TEST_CASE("a run of a version without --scale has the standard scale", "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 2 --eval-every 1")).status == 0);
  std::string config = read_file(folder / "run/config.json");
  const std::string line = R"text("scale": "1/sqrt(d_k)",)text";
  const auto place = config.find(line);
  REQUIRE(place != std::string::npos);
  write_file(folder / "run/config.json", config.erase(place, line.size()));
  CHECK(run(folder.resume("run")).status == 0);

  const std::string wrong = R"("scale": "2/d_k", "n_head")";
  config.replace(config.find("\"n_head\""), 8, wrong);
  write_file(folder / "run/config.json", config);
  CHECK_THAT(run(folder.resume("run")).err,
             ContainsSubstring("scale: expected 1/sqrt(d_k), 1/d_k, none or a finite number"));
}

TEST_CASE("train_gpt keeps a byte-order mark out of the vocabulary", "[app][train_gpt]") {
  const TinyFolder folder;
  write_file(folder / "text.txt", "\ufeff" + tiny_text());
  REQUIRE(run(folder.train("characters", "--steps 1")).status == 0);
  const auto tokenizer = mini::Tokenizer::load(folder / "characters/tokenizer.json");
  const auto tokens = [&](const std::string& name, int64_t vocab_size) {
    return mini::read_tokens(folder / name / "tokens.safetensors", vocab_size);
  };
  CHECK(tokenizer.decode(tokens("characters", tokenizer.vocab_size())) == tiny_text());
  REQUIRE(run(folder.train("bytes", "--steps 1 --tokenizer bytes")).status == 0);
  CHECK(mini::Tokenizer::bytes().decode(tokens("bytes", 256)) == "\ufeff" + tiny_text());
}

TEST_CASE("train_gpt and its runs may have names that are not UTF-8", "[app][train_gpt]") {
  const TinyFolder folder;
  std::filesystem::create_directory(folder / "f\xe9");
  std::filesystem::rename(folder / "text.txt", folder / "f\xe9/t\xe9xt.txt");
  const std::string command =
      "train_gpt --steps 2 --eval-every 1 --block-size 8 --batch-size 4 "
      "--n-layer 1 --n-head 1 --n-embd 8 --threads 1 --data " +
      folder.path_of("f\xe9/t\xe9xt.txt");
  const Run done = run(command + " --output " + folder.path_of("f\xe9/run"));
  INFO(done.err);
  REQUIRE(done.status == 0);
  const auto config = json::parse(read_file(folder / "f\xe9/run/config.json"));
  CHECK(config["data"].get<std::string>().ends_with("/f%E9/t%E9xt.txt"));
  CHECK(run(folder.resume("f\xe9/run")).status == 0);
  CHECK(run(folder.resume("f\xe9/run") + " --data " + folder.path_of("f\xe9/t\xe9xt.txt")).status ==
        0);

  const Run further = run(command + " --output " + folder.path_of("more\xff") + " --init-from " +
                          folder.path_of("f\xe9/run"));
  INFO(further.err);
  CHECK(further.status == 0);
  CHECK(run("plot_metrics " + folder.path_of("more\xff") + " --format svg --output " +
            folder.path_of("plot\xe9.svg"))
            .status == 0);
  CHECK(run("generate_text --new-tokens 2 --model " + folder.path_of("more\xff")).status == 0);
  CHECK(run("inspect_attention --prompt 'to be' --format html --output " +
            folder.path_of("page\xe9.html") + " --model " + folder.path_of("more\xff"))
            .status == 0);
}

TEST_CASE("train_gpt reports the val_loss of its checkpoints", "[app][train_gpt]") {
  const TinyFolder folder;
  // The learning rate is so large that the last evaluation is not the best.
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
    double sum = 0.0;  // one window at a time, unlike the program
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

TEST_CASE("train_gpt follows the learning rate schedule", "[app][train_gpt]") {
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
  // The defaults: warm-up for a tenth of the steps, then decay to a tenth of the rate.
  CHECK_THAT(rates("defaults", "--steps 10").index({torch::tensor({0, 1, 9})}),
             AllClose(torch::tensor({5e-4, 1e-3, 1e-4 + 4.5e-4 * (1 + std::cos(M_PI * 8 / 9))},
                                    at::kDouble),
                      0, 1e-12));
}

TEST_CASE("each option of train_gpt has an effect", "[app][train_gpt]") {
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

  // gradient_norm is the norm before clipping.
  train("unclipped", "--clip 0");
  CHECK(folder.metrics("unclipped")[0]["gradient_norm"] ==
        folder.metrics("usual")[0]["gradient_norm"]);
}

TEST_CASE("train_gpt trains on accumulated batches as on one large batch", "[app][train_gpt]") {
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

TEST_CASE("train_gpt with two threads repeats bit for bit and agrees with one thread",
          "[app][train_gpt]") {
  const TinyFolder folder;
  for (const std::string dropout : {"0", "0.2"}) {
    INFO("dropout " << dropout);
    const std::string options = "--steps 30 --eval-every 10 --dropout " + dropout + " --threads ";
    REQUIRE(run(folder.train("one" + dropout, options + "1")).status == 0);
    REQUIRE(run(folder.train("two" + dropout, options + "2")).status == 0);
    REQUIRE(run(folder.train("again" + dropout, options + "2")).status == 0);
    check_same_runs(folder, "again" + dropout, "two" + dropout);
    const Tensors weights_of_one = tensors_of(folder / ("one" + dropout) / "last", "model"),
                  weights_of_two = tensors_of(folder / ("two" + dropout) / "last", "model");
    if (dropout == "0") {
      // Each thread computes the gradients of half a batch; their sum is rounded differently.
      CHECK_FALSE(same(weights_of_two, weights_of_one));
    } else {
      // Both compute whole batches with the same dropout. LibTorch's matrix products may round
      // differently on two threads; other dropout would change weights by about 30 * 1e-3.
      for (const auto& item : weights_of_one) {
        CHECK_THAT(weights_of_two[item.key()], AllClose(item.value(), 0, 1e-4));
      }
    }

    const auto one = folder.metrics("one" + dropout), two = folder.metrics("two" + dropout);
    REQUIRE(one.size() == two.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      for (const std::string name : {"train_loss", "gradient_norm"}) {
        CHECK(std::abs(two[i][name].get<double>() - one[i][name].get<double>()) < 1e-4);
      }
    }
  }
}
