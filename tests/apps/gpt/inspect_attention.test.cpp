// SPDX-License-Identifier: MIT
#include <cmath>

#include "apps/gpt/heads_folder.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "mini/gpt.h"
#include "mini/pretrained.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

/// Compares the figures of one head with their definitions, computed by LibTorch's functions.
void check_figures(const json& figures, const at::Tensor& weights, bool causal) {
  const int64_t T = weights.size(0);
  const at::Tensor entropy = -at::xlogy(weights, weights).sum(-1);
  at::Tensor visible = at::full({T}, T, at::kDouble), places = at::arange(T, at::kDouble);
  if (causal) visible = places + 1;
  const at::Tensor back = places.unsqueeze(1) - places;  // (T, T): i - j
  const auto close = [&](const char* name, const at::Tensor& expected, double tolerance) {
    INFO(name);
    CHECK(std::abs(figures[name].get<double>() - expected.item<double>()) < tolerance);
  };
  close("entropy", entropy.mean(), 1e-9);
  close("entropy_share", entropy.sum() / visible.log().sum(), 1e-9);
  close("peak", weights.amax(-1).mean(), 1e-9);
  close("distance", (weights * back).sum(-1).mean(), 1e-8);
}

}  // namespace

TEST_CASE("inspect_attention measures every head, without and with the division",
          "[app][inspect_attention]") {
  // Fewer and more queries than one call of attention computes.
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 7, 4}, std::vector<int64_t>{1, 1, 300, 8}}) {
    const at::Tensor q = drawn(sizes, 1), k = drawn(sizes, 2);
    const HeadsFolder folder(q, k);
    for (const bool causal : {false, true}) {
      INFO("T " << sizes[2] << ", causal " << causal);
      const json j = run_json(folder.inspect(causal ? "--causal" : ""));
      CHECK(j["layers"] == sizes[0]);
      CHECK(j["heads"] == sizes[1]);
      CHECK(j["tokens"] == sizes[2]);
      CHECK(j["head_size"] == sizes[3]);
      CHECK(j["causal"] == causal);
      REQUIRE(j["attention"].size() == static_cast<size_t>(sizes[0] * sizes[1]));
      const double scale = 1 / std::sqrt(static_cast<double>(sizes[3]));
      int64_t place = 0;
      for (const json& one : j["attention"]) {
        const int64_t layer = place / sizes[1], head = place++ % sizes[1];
        CHECK(one["layer"] == layer);
        CHECK(one["head"] == head);
        const at::Tensor qh = q[layer][head], kh = k[layer][head];
        check_figures(one["unscaled"], reference_weights(qh, kh, 1, causal), causal);
        check_figures(one["scaled"], reference_weights(qh, kh, scale, causal), causal);
      }
    }
  }
}

TEST_CASE("inspect_attention accepts one layer, one head, and all floating dtypes",
          "[app][inspect_attention]") {
  const at::Tensor q = drawn({2, 5, 4}, 1), k = drawn({2, 5, 4}, 2);
  const json both = run_json(HeadsFolder(q, k).inspect());
  CHECK(both["layers"] == 1);
  CHECK(both["heads"] == 2);
  const json second = run_json(HeadsFolder(q[1].clone(), k[1].clone()).inspect());
  CHECK(second["heads"] == 1);
  // Not bit for bit: LibTorch may sum a product of another shape in another order. That changes
  // these float64 figures by about 1e-16.
  REQUIRE(second["attention"][0]["scaled"].size() == 4);
  for (const auto& [name, value] : second["attention"][0]["scaled"].items()) {
    INFO(name);
    CHECK(std::abs(value.get<double>() - both["attention"][1]["scaled"][name].get<double>()) <
          1e-12);
  }
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kFloat, 1e-6), {at::kHalf, 2e-3}, {at::kBFloat16, 2e-2}}) {
    const json other = run_json(HeadsFolder(q.to(dtype), k.to(dtype)).inspect());
    for (const char* name : {"entropy", "peak", "distance"}) {
      CHECK(std::abs(other["attention"][1]["scaled"][name].get<double>() -
                     both["attention"][1]["scaled"][name].get<double>()) < tolerance);
    }
  }
  const json alone = run_json(HeadsFolder(drawn({1, 4}, 1), drawn({1, 4}, 2)).inspect());
  CHECK(alone["attention"][0]["scaled"] ==
        json{{"entropy", 0.0}, {"entropy_share", 0.0}, {"peak", 1.0}, {"distance", 0.0}});
}

TEST_CASE("inspect_attention prints the heads as a table", "[app][inspect_attention]") {
  // In head 0 a query's own key scores 4 and the others 0; in head 1 all score 0.
  const at::Tensor eye = at::eye(4, at::kFloat).mul(2).unsqueeze(0);
  const HeadsFolder folder(at::cat({eye, at::zeros({1, 4, 4})}), at::cat({eye, eye}));
  const Run done = run(folder.inspect("--causal"));
  INFO(done.err);
  CHECK(done.status == 0);
  CHECK(done.out == R"(1 layer of 2 heads of size 4, 4 tokens, causal

             without the division                divided by 2.00
layer  head  entropy  of even   peak  distance    entropy  of even   peak  distance
    0     0    0.132     17 %  0.974      0.04      0.487     61 %  0.845      0.25
    0     1    0.795    100 %  0.521      0.75      0.795    100 %  0.521      0.75

All figures are means over the queries. entropy: in nats. of even: the entropy divided by
that of even weights on the visible keys. peak: the largest weight. distance: the weighted
mean number of tokens from the query back to its keys.

Averaged over the heads, the division by 2.00 changes the entropy from 58 % to 81 % of
that of even weights, and the peak from 0.75 to 0.68.
Head 0 of layer 0 changes most, from 17 % to 61 %.
With the division, the distance ranges from 0.25 tokens in head 0 of layer 0
to 0.75 tokens in head 1 of layer 0.
)");
  const std::string csv = run(folder.inspect("--causal --format csv")).out;
  CHECK_THAT(csv, ContainsSubstring("layer,head,division,entropy,entropy_share,peak,distance\n"
                                    "0,0,none,0.13"));
  CHECK_THAT(csv, ContainsSubstring("\n0,1,sqrt(head_size),0.79"));
}

TEST_CASE("inspect_attention measures the heads of a model", "[app][inspect_attention]") {
  TemporaryFolder folder;
  mini::GPT model(
      mini::GPTOptions(101).block_size(16).n_layer(2).n_head(2).n_embd(8).bias(true).seed(1));
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model->parameters()) at::Tensor(parameter).mul_(20);
  }
  mini::save_gpt2(folder / "gpt2", model);
  const std::string inspect = "inspect_attention --model '" + (folder / "gpt2").string() + "' ";
  const json j = run_json(inspect + "--prompt-tokens 5,0,100,7,5");
  CHECK(j["layers"] == 2);
  CHECK(j["heads"] == 2);
  CHECK(j["tokens"] == 5);
  CHECK(j["head_size"] == 4);
  CHECK(j["causal"] == true);
  const at::NoGradGuard no_grad;
  model->for_each_attention(
      torch::tensor({{5, 0, 100, 7, 5}}), [&](int64_t layer, const mini::AttentionSteps& steps) {
        for (int64_t head = 0; head < 2; ++head) {
          const json& one = j["attention"][static_cast<size_t>(2 * layer + head)];
          const at::Tensor weights = steps.weights[0][head].to(at::kDouble);
          CHECK(std::abs(one["scaled"]["peak"].get<double>() -
                         weights.amax(-1).mean().item<double>()) < 1e-5);
          CHECK(one["unscaled"]["peak"].get<double>() > one["scaled"]["peak"].get<double>() - 1e-6);
        }
      });
  CHECK(run_json(inspect + "--prompt '5 0 100 7 5'") == j);
  write_file(folder / "prompt.txt", "5 0 100\n7 5\n");
  CHECK(run_json(inspect + "--prompt-file '" + (folder / "prompt.txt").string() + "'") == j);
  CHECK(run_json(inspect + "--prompt-tokens 5,0,100,7,6") != j);
}

TEST_CASE("inspect_attention explains bad input in one line", "[app][inspect_attention]") {
  const auto explains = [](const std::string& command, int status, const std::string& fragment) {
    const Run failed = run(command);
    INFO(command << ": " << failed.err);
    CHECK(failed.status == status);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring(fragment));
  };
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 1")).status == 0);
  const std::string model = "inspect_attention --model " + folder.path_of("run");
  explains("inspect_attention", 2, "expected --model or --tensors");
  explains(model, 2, "--model: expected --prompt, --prompt-file or --prompt-tokens");
  explains(model + " --prompt a --tensors b", 2, "--model excludes --tensors");
  explains(model + " --prompt a --causal", 2, "--causal requires --tensors");
  explains(model + " --prompt a --prompt-file b", 2, "--prompt excludes --prompt-file");
  explains(model + " --prompt a --prompt-tokens 1", 2, "--prompt excludes --prompt-tokens");
  explains(model + " --prompt-file a --prompt-tokens 1", 2,
           "--prompt-file excludes --prompt-tokens");
  explains("inspect_attention --tensors a --prompt b", 2, "--prompt requires --model");
  explains(model + " --prompt a --format svg", 2, "expected text, json, csv or html, got 'svg'");
  explains(model + " --prompt ''", 1, "--prompt: expected at least one character, got none");
  explains(model + " --prompt-file /nowhere", 1, "/nowhere");
  explains(model + " --prompt xyz", 1, "x");
  explains(model + " --prompt-tokens 99", 1, "--prompt-tokens: Tokenizer::decode: expected token");
  explains(
      model + " --prompt 'to be or not'", 1,
      "expected a prompt of at most 8 tokens, the block size of this model, got 12: train a model "
      "with a larger --block-size, or pass queries and keys of any length with --tensors");
  explains("inspect_attention --model /nowhere --prompt a", 1, "there is no '/nowhere'");
  explains("inspect_attention --tensors /nowhere", 1, "/nowhere");

  const auto explains_tensors = [&](const at::Tensor& q, const at::Tensor& k,
                                    const std::string& fragment) {
    explains(HeadsFolder(q, k).inspect(), 1, "heads.safetensors': expected " + fragment);
  };
  const at::Tensor good = at::zeros({2, 5, 4});
  explains_tensors(good, at::zeros({2, 6, 4}),
                   "q and k of one shape and dtype, got q [2, 5, 4] Float and k [2, 6, 4] Float");
  explains_tensors(good, good.to(at::kDouble), "q and k of one shape and dtype");
  explains_tensors(good, at::zeros({5}), "k as (layers, heads, T, hs), (heads, T, hs) or (T, hs)");
  explains_tensors(at::zeros({1, 1, 2, 5, 4}), good, "q as (layers, heads, T, hs)");
  explains_tensors(at::zeros({2, 0, 4}), good, "q as (layers, heads, T, hs)");
  explains_tensors(at::zeros({2, 5, 4}, at::kLong), good, "q as (layers, heads, T, hs)");
  explains(HeadsFolder(good, good, "keys").inspect(), 1, "heads.safetensors' has no tensor k");
}
