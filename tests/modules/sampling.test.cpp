// SPDX-License-Identifier: MIT
// How `generate` chooses a token from the logits: temperature, top_k and top_p.
#include <cmath>
#include <limits>
#include <vector>

#include "mini/generate.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

// A model whose next token is i with probability probabilities[i], whatever the context.
GPT fixed_model(const std::vector<double>& probabilities) {
  GPT model(GPTOptions(static_cast<int64_t>(probabilities.size()))
                .block_size(4)
                .n_layer(1)
                .n_head(1)
                .n_embd(2)
                .bias(true)
                .seed(1));
  const at::NoGradGuard no_grad;
  model->transformer->ln_f->weight.zero_();
  model->transformer->ln_f->bias.copy_(torch::tensor({1.0F, 0.0F}));  // the state at each position
  model->transformer->wte->weight.select(1, 0).copy_(
      torch::tensor(probabilities, at::kDouble).log());
  return model;
}

// The relative frequency of each token in `draws` generated tokens.
std::vector<double> frequencies(GPT& model, GenerateOptions options, int64_t draws = 4000) {
  options.new_tokens = 1;
  options.seed = 5;
  const at::Tensor drawn = generate(model, at::zeros({draws, 1}, at::kLong), options).select(1, 1);
  std::vector<double> result;
  for (int64_t id = 0; id < model->options.vocab_size(); ++id) {
    result.push_back(drawn.eq(id).to(at::kDouble).mean().item<double>());
  }
  return result;
}

// Each frequency is within five standard deviations of its probability, and 0 if that is 0.
void check_frequencies(const std::vector<double>& actual, const std::vector<double>& probabilities,
                       int64_t draws = 4000) {
  REQUIRE(actual.size() == probabilities.size());
  for (size_t id = 0; id < actual.size(); ++id) {
    const double p = probabilities[id];
    INFO("token " << id << ": " << actual[id] << ", expected " << p);
    CHECK(std::abs(actual[id] - p) <= 5 * std::sqrt(p * (1 - p) / static_cast<double>(draws)));
  }
}

}  // namespace

TEST_CASE("generate samples tokens with the model's probabilities", "[sampling]") {
  GPT model = fixed_model({0.5, 0.3, 0.2});
  check_frequencies(frequencies(model, {}), {0.5, 0.3, 0.2});
}

TEST_CASE("temperature divides the logits", "[sampling]") {
  GPT model = fixed_model({0.5, 0.3, 0.2});
  SECTION("below 1, likely tokens become likelier") {
    check_frequencies(frequencies(model, {.temperature = 0.5}),
                      {0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38});
  }
  SECTION("far above 1, all tokens are equally likely") {
    check_frequencies(frequencies(model, {.temperature = 1e9}), {1 / 3.0, 1 / 3.0, 1 / 3.0});
  }
  SECTION("near 0, only the most likely token remains, without overflow") {
    for (const double temperature : {1e-3, 1e-300, 5e-324}) {
      CHECK(frequencies(model, {.temperature = temperature}, 10) == std::vector<double>{1, 0, 0});
    }
  }
}

TEST_CASE("temperature 0 chooses the most likely token; ties go to the lowest id", "[sampling]") {
  GPT model = fixed_model({0.1, 0.4, 0.1, 0.4});
  CHECK(frequencies(model, {.temperature = 0}, 10) == std::vector<double>{0, 1, 0, 0});
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  generate(model, at::zeros({1, 1}, at::kLong), {.new_tokens = 3, .temperature = 0});
  CHECK_THAT(at::rand({5}), Equals(expected));  // greedy generation draws nothing
}

TEST_CASE("top_k keeps exactly the k most likely tokens", "[sampling]") {
  SECTION("with renormalised probabilities") {
    GPT model = fixed_model({0.1, 0.4, 0.2, 0.3});
    check_frequencies(frequencies(model, {.top_k = 2}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
    check_frequencies(frequencies(model, {.temperature = 0.5, .top_k = 2}), {0, 0.64, 0, 0.36});
  }
  SECTION("ties go to the lower ids") {
    GPT model = fixed_model({0.2, 0.2, 0.2, 0.2, 0.2});
    check_frequencies(frequencies(model, {.top_k = 3}), {1 / 3.0, 1 / 3.0, 1 / 3.0, 0, 0});
    CHECK(frequencies(model, {.top_k = 1}, 10) == std::vector<double>{1, 0, 0, 0, 0});
  }
  SECTION("k above V keeps all tokens") {
    GPT model = fixed_model({0.5, 0.3, 0.2});
    for (const int64_t k : {int64_t{3}, int64_t{4}, std::numeric_limits<int64_t>::max()}) {
      check_frequencies(frequencies(model, {.top_k = k}), {0.5, 0.3, 0.2});
    }
  }
}

TEST_CASE("top_p keeps the fewest most likely tokens whose probabilities reach it", "[sampling]") {
  GPT model = fixed_model({0.15, 0.5, 0.05, 0.3});
  check_frequencies(frequencies(model, {.top_p = 1e-9}, 100), {0, 1, 0, 0});
  check_frequencies(frequencies(model, {.top_p = 0.45}, 100), {0, 1, 0, 0});
  check_frequencies(frequencies(model, {.top_p = 0.55}), {0, 0.5 / 0.8, 0, 0.3 / 0.8});
  check_frequencies(frequencies(model, {.top_p = 0.9}), {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95});
  check_frequencies(frequencies(model, {.top_p = 0.96}), {0.15, 0.5, 0.05, 0.3});
  check_frequencies(frequencies(model, {.top_p = 1.0}), {0.15, 0.5, 0.05, 0.3});
  SECTION("probabilities are those after temperature") {
    check_frequencies(frequencies(model, {.temperature = 0.25, .top_p = 0.85}, 100), {0, 1, 0, 0});
  }
  SECTION("probabilities are renormalised after top_k: 0.5 / 0.8") {
    check_frequencies(frequencies(model, {.top_k = 2, .top_p = 0.6}, 100), {0, 1, 0, 0});
  }
  SECTION("ties go to the lower ids") {
    GPT even = fixed_model({0.25, 0.25, 0.25, 0.25});
    check_frequencies(frequencies(even, {.top_p = 0.4}), {0.5, 0.5, 0, 0});
  }
}

TEST_CASE("a token of probability 0 is never generated", "[sampling]") {
  GPT model = fixed_model({0.5, 0, 0.5, 0});
  check_frequencies(frequencies(model, {}), {0.5, 0, 0.5, 0});
  check_frequencies(frequencies(model, {.top_k = 4}), {0.5, 0, 0.5, 0});
  check_frequencies(frequencies(model, {.top_p = 0.999}), {0.5, 0, 0.5, 0});
}

TEST_CASE("adding a constant to all logits changes nothing", "[sampling]") {
  GPT model = fixed_model({0.5, 0.3, 0.2});
  {
    const at::NoGradGuard no_grad;
    model->transformer->wte->weight.select(1, 0).add_(2000);
  }
  check_frequencies(frequencies(model, {}), {0.5, 0.3, 0.2});
  check_frequencies(frequencies(model, {.top_k = 2}), {0.625, 0.375, 0});
}

TEST_CASE("generate rejects logits that are NaN or infinite", "[sampling]") {
  const auto rejects = [](double value, int64_t id) {
    GPT model = fixed_model({0.25, 0.25, 0.25, 0.25});
    {
      const at::NoGradGuard no_grad;
      model->transformer->wte->weight[id][0] = value;  // the logit of that token
    }
    for (const double temperature : {0.0, 1.0}) {
      INFO("logit of token " << id << ": " << value << ", temperature " << temperature);
      CHECK_THROWS_WITH(generate(model, at::full({1, 2}, 1, at::kLong),
                                 {.new_tokens = 1, .temperature = temperature}),
                        ContainsSubstring("generate: expected finite logits, got NaN or infinity"));
    }
    CHECK(all_training(model, true));
  };
  rejects(NAN, 0);
  rejects(NAN, 3);
  rejects(NAN, 1);  // the token of the prompt, which makes every logit NaN
  rejects(INFINITY, 2);
}
