// SPDX-License-Identifier: MIT
#include "mini/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

constexpr int64_t kBlockSize = 8;
constexpr int64_t kVocabSize = 11;

// A model that is sure of what it says, so that rounding does not change a greedy token.
GPT small_model(double dropout = 0.0) {
  GPT model(GPTOptions(kVocabSize)
                .block_size(kBlockSize)
                .n_layer(2)
                .n_head(3)
                .n_embd(12)
                .dropout(dropout)
                .seed(1));
  scramble(*model, 0.5, 2);
  return model;
}

// A model that expects the token with id i with probabilities[i], whatever came before.
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

at::Tensor random_prompt(std::vector<int64_t> sizes) {
  return at::randint(kVocabSize, sizes, at::kLong);
}

// How often each token comes, in `draws` of one token.
std::vector<double> shares(GPT& model, GenerateOptions options, int64_t draws = 4000) {
  options.new_tokens = 1;
  options.seed = 5;
  const at::Tensor drawn = generate(model, at::zeros({draws, 1}, at::kLong), options).select(1, 1);
  std::vector<double> result;
  for (int64_t id = 0; id < model->options.vocab_size(); ++id) {
    result.push_back(drawn.eq(id).to(at::kDouble).mean().item<double>());
  }
  return result;
}

// Within five standard deviations of what `draws` of the probabilities give; 0 exactly.
void check_shares(const std::vector<double>& actual, const std::vector<double>& probabilities,
                  int64_t draws = 4000) {
  REQUIRE(actual.size() == probabilities.size());
  for (size_t id = 0; id < actual.size(); ++id) {
    const double p = probabilities[id];
    INFO("token " << id << ": " << actual[id] << ", expected " << p);
    CHECK(std::abs(actual[id] - p) <= 5 * std::sqrt(p * (1 - p) / static_cast<double>(draws)));
  }
}

// Greedy generation as nanoGPT writes it, from the tokens [begin(end), end) each time.
template <typename Begin>
at::Tensor by_hand(GPT& model, at::Tensor tokens, int64_t new_tokens, Begin begin) {
  const at::NoGradGuard no_grad;
  for (int64_t i = 0; i < new_tokens; ++i) {
    const int64_t first = begin(tokens.size(1));
    const at::Tensor logits = model(tokens.narrow(1, first, tokens.size(1) - first));
    tokens = at::cat({tokens, logits.select(1, -1).argmax(-1, /*keepdim=*/true)}, 1);
  }
  return tokens;
}

bool all_training(const GPT& model, bool expected) {
  const auto modules = model->modules();
  return std::all_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return module->is_training() == expected; });
}

}  // namespace

TEST_CASE("generation goes on from prompts of any length, beyond the block", "[generate]") {
  GPT model = small_model();
  for (const int64_t length : {1, 7, 8, 9, 20}) {
    for (const bool use_cache : {true, false}) {
      INFO("prompt " << length << ", cache " << use_cache);
      const at::Tensor prompt = random_prompt({2, length});
      GenerateOptions options{.new_tokens = 20, .temperature = 0, .use_cache = use_cache};
      // Exactly: from the last block_size tokens.
      const at::Tensor exact = generate(model, prompt, options);
      CHECK(exact.sizes() == at::IntArrayRef({2, length + 20}));
      CHECK(exact.scalar_type() == at::kLong);
      CHECK_THAT(exact.narrow(1, 0, length), Equals(prompt));
      CHECK_THAT(exact, Equals(by_hand(model, prompt, 20, [](int64_t end) {
                   return std::max<int64_t>(end - kBlockSize, 0);
                 })));
      // Fast: from the newer half of a context that was full.
      options.full_context = FullContext::kKeepHalf;
      int64_t first = std::max<int64_t>(length - kBlockSize, 0);
      CHECK_THAT(generate(model, prompt, options),
                 Equals(by_hand(model, prompt, 20, [&](int64_t end) {
                   if (end - first > kBlockSize) first = end - kBlockSize / 2;
                   return first;
                 })));
    }
  }
}

TEST_CASE("with a cache, earlier tokens are not computed again", "[generate]") {
  const auto generated = [](bool use_cache, bool change) {
    GPT model = small_model();
    const at::Tensor prompt = at::arange(kVocabSize).unsqueeze(1);
    return generate(model, prompt,
                    {.new_tokens = kBlockSize, .temperature = 0, .use_cache = use_cache},
                    [&](const at::Tensor&) {
                      const at::NoGradGuard no_grad;  // the first position, when it has been seen
                      if (change) model->transformer->wpe->weight[0].fill_(5);
                    });
  };
  CHECK_THAT(generated(true, true), Equals(generated(true, false)));
  CHECK_FALSE(at::equal(generated(false, true), generated(false, false)));
}

TEST_CASE("the rules for a full context differ where it overflows, not before", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_prompt({16, 1});
  const auto by_rule = [&](FullContext rule) {
    return generate(model, prompt, {.new_tokens = 20, .temperature = 0, .full_context = rule});
  };
  const at::Tensor exact = by_rule(FullContext::kExact), fast = by_rule(FullContext::kKeepHalf);
  CHECK_THAT(fast.narrow(1, 0, kBlockSize + 1), Equals(exact.narrow(1, 0, kBlockSize + 1)));
  CHECK_FALSE(at::equal(fast, exact));
}

TEST_CASE("of a long prompt the model sees the last block_size tokens", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_prompt({3, 20});
  for (const FullContext rule : {FullContext::kExact, FullContext::kKeepHalf}) {
    const GenerateOptions options{.new_tokens = 1, .temperature = 0, .full_context = rule};
    CHECK_THAT(generate(model, prompt, options).select(1, 20),
               Equals(generate(model, prompt.narrow(1, 12, 8), options).select(1, 8)));
  }
}

TEST_CASE("a block of one position generates too", "[generate]") {
  GPT model(GPTOptions(5).block_size(1).n_layer(1).n_head(1).n_embd(4).seed(1));
  for (const FullContext rule : {FullContext::kExact, FullContext::kKeepHalf}) {
    CHECK(generate(model, at::zeros({1, 3}, at::kLong), {.new_tokens = 4, .full_context = rule})
              .sizes() == at::IntArrayRef({1, 7}));
  }
}

TEST_CASE("no new tokens leave the prompt as it is", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_prompt({2, 3});
  const at::Tensor result = generate(model, prompt, {.new_tokens = 0});
  CHECK_THAT(result, Equals(prompt));
  CHECK_FALSE(result.is_alias_of(prompt));
  CHECK(generate(model, random_prompt({0, 3}), {.new_tokens = 2}).sizes() ==
        at::IntArrayRef({0, 5}));
}

TEST_CASE("tokens come as often as the model expects them", "[generate]") {
  GPT model = fixed_model({0.5, 0.3, 0.2});
  check_shares(shares(model, {}), {0.5, 0.3, 0.2});
}

TEST_CASE("a temperature divides the logits", "[generate]") {
  GPT model = fixed_model({0.5, 0.3, 0.2});
  SECTION("below 1 for the likely") {
    check_shares(shares(model, {.temperature = 0.5}), {0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38});
  }
  SECTION("far above 1 for all alike") {
    check_shares(shares(model, {.temperature = 1e9}), {1 / 3.0, 1 / 3.0, 1 / 3.0});
  }
  SECTION("near 0 for the likeliest alone, without overflow") {
    for (const double temperature : {1e-3, 1e-300, 5e-324}) {
      CHECK(shares(model, {.temperature = temperature}, 10) == std::vector<double>{1, 0, 0});
    }
  }
}

TEST_CASE("temperature 0 takes the likeliest token, of equals the lowest id", "[generate]") {
  GPT model = fixed_model({0.1, 0.4, 0.1, 0.4});
  CHECK(shares(model, {.temperature = 0}, 10) == std::vector<double>{0, 1, 0, 0});
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  generate(model, at::zeros({1, 1}, at::kLong), {.new_tokens = 3, .temperature = 0});
  CHECK_THAT(at::rand({5}), Equals(expected));  // it draws nothing
}

TEST_CASE("top_k keeps exactly the k likeliest tokens", "[generate]") {
  SECTION("by their share of what is kept") {
    GPT model = fixed_model({0.1, 0.4, 0.2, 0.3});
    check_shares(shares(model, {.top_k = 2}), {0, 0.4 / 0.7, 0, 0.3 / 0.7});
    check_shares(shares(model, {.temperature = 0.5, .top_k = 2}), {0, 0.64, 0, 0.36});
  }
  SECTION("of equals the lower ids") {
    GPT model = fixed_model({0.2, 0.2, 0.2, 0.2, 0.2});
    check_shares(shares(model, {.top_k = 3}), {1 / 3.0, 1 / 3.0, 1 / 3.0, 0, 0});
    CHECK(shares(model, {.top_k = 1}, 10) == std::vector<double>{1, 0, 0, 0, 0});
  }
  SECTION("at most all there are") {
    GPT model = fixed_model({0.5, 0.3, 0.2});
    for (const int64_t k : {int64_t{3}, int64_t{4}, std::numeric_limits<int64_t>::max()}) {
      check_shares(shares(model, {.top_k = k}), {0.5, 0.3, 0.2});
    }
  }
}

TEST_CASE("top_p keeps the fewest likeliest tokens that reach it", "[generate]") {
  GPT model = fixed_model({0.15, 0.5, 0.05, 0.3});
  check_shares(shares(model, {.top_p = 1e-9}, 100), {0, 1, 0, 0});
  check_shares(shares(model, {.top_p = 0.45}, 100), {0, 1, 0, 0});
  check_shares(shares(model, {.top_p = 0.55}), {0, 0.5 / 0.8, 0, 0.3 / 0.8});
  check_shares(shares(model, {.top_p = 0.9}), {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95});
  check_shares(shares(model, {.top_p = 0.96}), {0.15, 0.5, 0.05, 0.3});
  check_shares(shares(model, {.top_p = 1.0}), {0.15, 0.5, 0.05, 0.3});
  SECTION("of what the temperature makes of them") {
    check_shares(shares(model, {.temperature = 0.25, .top_p = 0.85}, 100), {0, 1, 0, 0});
  }
  SECTION("of what top_k has left: 0.5 of 0.8 there") {
    check_shares(shares(model, {.top_k = 2, .top_p = 0.6}, 100), {0, 1, 0, 0});
  }
  SECTION("of equals the lower ids") {
    GPT even = fixed_model({0.25, 0.25, 0.25, 0.25});
    check_shares(shares(even, {.top_p = 0.4}), {0.5, 0.5, 0, 0});
  }
}

TEST_CASE("a token of probability 0 never comes", "[generate]") {
  GPT model = fixed_model({0.5, 0, 0.5, 0});
  check_shares(shares(model, {}), {0.5, 0, 0.5, 0});
  check_shares(shares(model, {.top_k = 4}), {0.5, 0, 0.5, 0});
  check_shares(shares(model, {.top_p = 0.999}), {0.5, 0, 0.5, 0});
}

TEST_CASE("a seed decides all draws and leaves the global generator alone", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = at::zeros({3, 1}, at::kLong);
  const auto drawn = [&](std::optional<uint64_t> seed) {
    return generate(model, prompt, {.new_tokens = 30, .temperature = 3, .seed = seed});
  };
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  const at::Tensor first = drawn(1);
  CHECK_THAT(at::rand({5}), Equals(expected));
  CHECK_THAT(drawn(1), Equals(first));
  CHECK_FALSE(at::equal(drawn(2), first));
  CHECK_FALSE(at::equal(first[0], first[1]));  // each sequence has draws of its own

  torch::manual_seed(1);  // without a seed the global generator decides
  CHECK_THAT(drawn(std::nullopt), Equals(first));
  CHECK_FALSE(at::equal(drawn(std::nullopt), first));
}

TEST_CASE("each token is handed out as it comes, and the receiver may stop", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_prompt({2, 3});
  const GenerateOptions options{.new_tokens = 10, .seed = 1};
  std::vector<at::Tensor> tokens;
  const at::Tensor result = generate(model, prompt, options, [&](const at::Tensor& next) {
    CHECK(next.sizes() == at::IntArrayRef({2}));
    CHECK(at::GradMode::is_enabled());  // the receiver's own world
    tokens.push_back(next.clone());
  });
  CHECK_THAT(at::stack(tokens, 1), Equals(result.narrow(1, 3, 10)));

  std::vector<at::Tensor> until_stopped;
  const auto stop = [&](const at::Tensor& next) {
    until_stopped.push_back(next.clone());
    if (until_stopped.size() == 4) throw std::runtime_error("enough");
  };
  CHECK_THROWS_WITH(generate(model, prompt, options, stop), ContainsSubstring("enough"));
  CHECK_THAT(at::stack(until_stopped, 1), Equals(result.narrow(1, 3, 4)));
  CHECK(all_training(model, true));
  CHECK(at::GradMode::is_enabled());
  CHECK_THAT(generate(model, prompt, options), Equals(result));
}

TEST_CASE("generation runs in evaluation mode and gives back the model as it was", "[generate]") {
  GPT model = small_model(/*dropout=*/0.5);
  GPT plain = small_model();
  const at::Tensor prompt = random_prompt({2, 3});
  const GenerateOptions options{.new_tokens = 12, .temperature = 0};
  CHECK_THAT(generate(model, prompt, options), Equals(generate(plain, prompt, options)));
  CHECK(all_training(model, true));

  model->eval();
  generate(model, prompt, options);
  CHECK(all_training(model, false));

  BlockImpl& block = model->transformer->h->at<BlockImpl>(1);
  block.train();
  block.mlp->eval();
  generate(model, prompt, options);
  CHECK(block.is_training());
  CHECK(block.attn->is_training());
  CHECK_FALSE(block.mlp->is_training());
  CHECK_FALSE(block.mlp->c_fc->is_training());
  CHECK_FALSE(model->is_training());
  CHECK_FALSE(model->transformer->h->at<BlockImpl>(0).is_training());
}

TEST_CASE("generation records no gradients, and its result may be trained on", "[generate]") {
  GPT model = small_model();
  const at::Tensor result = generate(model, random_prompt({2, 3}), {.new_tokens = 6});
  CHECK_FALSE(result.is_inference());
  for (const at::Tensor& parameter : model->parameters()) {
    CHECK_FALSE(parameter.grad().defined());
  }
  model->loss(result.narrow(1, 0, 8), result.narrow(1, 1, 8)).backward();
  CHECK(model->transformer->wte->weight.grad().defined());
}

TEST_CASE("generation works in other dtypes", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_prompt({2, 3});
  const GenerateOptions options{.new_tokens = 12, .temperature = 0};
  const at::Tensor expected = generate(model, prompt, options);
  model->to(at::kDouble);
  CHECK_THAT(generate(model, prompt, options), Equals(expected));
  model->to(at::kBFloat16);
  CHECK(generate(model, prompt, options).sizes() == at::IntArrayRef({2, 15}));
}

TEST_CASE("a model whose logits are not numbers is an error", "[generate]") {
  const auto refused = [](double value, int64_t id) {
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
  refused(NAN, 0);
  refused(NAN, 3);
  refused(NAN, 1);  // the token of the prompt: every logit is NaN
  refused(INFINITY, 2);
}

TEST_CASE("large logits are as good as small ones", "[generate]") {
  GPT model = fixed_model({0.5, 0.3, 0.2});
  {
    const at::NoGradGuard no_grad;
    model->transformer->wte->weight.select(1, 0).add_(2000);
  }
  check_shares(shares(model, {}), {0.5, 0.3, 0.2});
  check_shares(shares(model, {.top_k = 2}), {0.625, 0.375, 0});
}

TEST_CASE("generation refuses arguments that cannot be", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = at::zeros({2, 3}, at::kLong);
  const auto refused = [&](const GenerateOptions& options, const char* message) {
    CHECK_THROWS_WITH(generate(model, prompt, options), ContainsSubstring(message));
  };
  refused({.new_tokens = -1}, "generate: expected new_tokens of at least 0, got -1");
  refused({.temperature = -0.5}, "generate: expected a finite temperature of at least 0, got -0.5");
  refused({.temperature = NAN}, "temperature of at least 0, got nan");
  refused({.temperature = INFINITY}, "temperature of at least 0, got inf");
  refused({.top_k = 0}, "generate: expected top_k above 0, got 0");
  refused({.top_k = -3}, "generate: expected top_k above 0, got -3");
  for (const double p : {0.0, -0.1, 1.5, static_cast<double>(NAN)}) {
    refused({.top_p = p}, "generate: expected top_p in (0, 1], got ");
  }

  const auto refuses_tokens = [&](const at::Tensor& tokens, const std::string& message) {
    CHECK_THROWS_WITH(generate(model, tokens, {.new_tokens = 1}), ContainsSubstring(message));
  };
  refuses_tokens(at::zeros({1, 0}, at::kLong),
                 "generate: expected a prompt of at least one token, (B, T) with T above 0, got "
                 "[1, 0]");
  refuses_tokens(at::zeros({3}, at::kLong), "generate: expected token ids (B, T), got [3]");
  refuses_tokens(prompt.to(at::kInt), "generate: expected token ids of int64 (Long), got Int");
  refuses_tokens(at::Tensor(), "generate: expected token ids (B, T), got an undefined tensor");
  refuses_tokens(prompt.add(11),
                 "generate: expected token ids from 0 to vocab_size - 1 = 10, got 11 at [0, 0]");
  refuses_tokens(prompt.sub(1), "got -1 at [0, 0]");

  GPT none{nullptr};
  CHECK_THROWS_WITH(generate(none, prompt, {}),
                    ContainsSubstring("generate: expected a model, got an empty GPT"));
}
