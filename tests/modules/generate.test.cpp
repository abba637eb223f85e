// SPDX-License-Identifier: MIT
#include "mini/generate.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

constexpr int64_t kBlockSize = 8;  // of small_gpt_options()

// A model with large logits, so that rounding does not change a greedy token.
GPT small_model(double dropout = 0.0) {
  GPT model(small_gpt_options().dropout(dropout).seed(1));
  scramble(*model, 0.5, 2);
  return model;
}

// Greedy generation as in nanoGPT. Each token is computed from the tokens [begin(end), end).
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

}  // namespace

TEST_CASE("generate continues prompts of any length beyond block_size", "[generate]") {
  GPT model = small_model();
  for (const int64_t length : {1, 7, 8, 9, 20}) {
    for (const bool use_cache : {true, false}) {
      INFO("prompt " << length << ", cache " << use_cache);
      const at::Tensor prompt = random_ids({2, length});
      GenerateOptions options{.new_tokens = 20, .temperature = 0, .use_cache = use_cache};
      // kExact: from the last block_size tokens.
      const at::Tensor exact = generate(model, prompt, options);
      CHECK(exact.sizes() == at::IntArrayRef({2, length + 20}));
      CHECK(exact.scalar_type() == at::kLong);
      CHECK_THAT(exact.narrow(1, 0, length), Equals(prompt));
      CHECK_THAT(exact, Equals(by_hand(model, prompt, 20, [](int64_t end) {
                   return std::max<int64_t>(end - kBlockSize, 0);
                 })));
      // kKeepHalf: from the newer half of a full context.
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

TEST_CASE("with a cache, generate does not recompute earlier tokens", "[generate]") {
  const auto generated = [](bool use_cache, bool change) {
    GPT model = small_model();
    const at::Tensor prompt = at::arange(model->options.vocab_size()).unsqueeze(1);
    return generate(
        model, prompt, {.new_tokens = kBlockSize, .temperature = 0, .use_cache = use_cache},
        [&](const at::Tensor&) {
          const at::NoGradGuard no_grad;  // the position of a token that is already cached
          if (change) model->transformer->wpe->weight[0].fill_(5);
        });
  };
  CHECK_THAT(generated(true, true), Equals(generated(true, false)));
  CHECK_FALSE(at::equal(generated(false, true), generated(false, false)));
}

TEST_CASE("kExact and kKeepHalf differ only after the context overflows", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_ids({16, 1});
  const auto by_rule = [&](FullContext rule) {
    return generate(model, prompt, {.new_tokens = 20, .temperature = 0, .full_context = rule});
  };
  const at::Tensor exact = by_rule(FullContext::kExact), fast = by_rule(FullContext::kKeepHalf);
  CHECK_THAT(fast.narrow(1, 0, kBlockSize + 1), Equals(exact.narrow(1, 0, kBlockSize + 1)));
  CHECK_FALSE(at::equal(fast, exact));
}

TEST_CASE("generate uses the last block_size tokens of a long prompt", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_ids({3, 20});
  for (const FullContext rule : {FullContext::kExact, FullContext::kKeepHalf}) {
    const GenerateOptions options{.new_tokens = 1, .temperature = 0, .full_context = rule};
    CHECK_THAT(generate(model, prompt, options).select(1, 20),
               Equals(generate(model, prompt.narrow(1, 12, 8), options).select(1, 8)));
  }
}

TEST_CASE("generate works with block_size 1", "[generate]") {
  GPT model(GPTOptions(5).block_size(1).n_layer(1).n_head(1).n_embd(4).seed(1));
  for (const FullContext rule : {FullContext::kExact, FullContext::kKeepHalf}) {
    CHECK(generate(model, at::zeros({1, 3}, at::kLong), {.new_tokens = 4, .full_context = rule})
              .sizes() == at::IntArrayRef({1, 7}));
  }
}

TEST_CASE("generate with new_tokens 0 returns a copy of the prompt", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_ids({2, 3});
  const at::Tensor result = generate(model, prompt, {.new_tokens = 0});
  CHECK_THAT(result, Equals(prompt));
  CHECK_FALSE(result.is_alias_of(prompt));
  CHECK(generate(model, random_ids({0, 3}), {.new_tokens = 2}).sizes() == at::IntArrayRef({0, 5}));
}

TEST_CASE("a seed determines all draws, and the global generator is not used", "[generate]") {
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
  CHECK_FALSE(at::equal(first[0], first[1]));  // each sequence has its own draws

  torch::manual_seed(1);  // without a seed, the global generator is used
  CHECK_THAT(drawn(std::nullopt), Equals(first));
  CHECK_FALSE(at::equal(drawn(std::nullopt), first));
}

TEST_CASE("on_token receives each token at once, and an exception from it stops generation",
          "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_ids({2, 3});
  const GenerateOptions options{.new_tokens = 10, .seed = 1};
  std::vector<at::Tensor> tokens;
  const at::Tensor result = generate(model, prompt, options, [&](const at::Tensor& next) {
    CHECK(next.sizes() == at::IntArrayRef({2}));
    CHECK(at::GradMode::is_enabled());  // on_token runs in the caller's grad mode
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

TEST_CASE("generate runs in evaluation mode and restores the mode of every module", "[generate]") {
  GPT model = small_model(/*dropout=*/0.5);
  GPT plain = small_model();
  const at::Tensor prompt = random_ids({2, 3});
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

TEST_CASE("generate records no gradients, and its result can be used in training", "[generate]") {
  GPT model = small_model();
  const at::Tensor result = generate(model, random_ids({2, 3}), {.new_tokens = 6});
  CHECK_FALSE(result.is_inference());
  for (const at::Tensor& parameter : model->parameters()) {
    CHECK_FALSE(parameter.grad().defined());
  }
  model->loss(result.narrow(1, 0, 8), result.narrow(1, 1, 8)).backward();
  CHECK(model->transformer->wte->weight.grad().defined());
}

TEST_CASE("generate works in float64 and bfloat16", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = random_ids({2, 3});
  const GenerateOptions options{.new_tokens = 12, .temperature = 0};
  const at::Tensor expected = generate(model, prompt, options);
  model->to(at::kDouble);
  CHECK_THAT(generate(model, prompt, options), Equals(expected));
  model->to(at::kBFloat16);
  CHECK(generate(model, prompt, options).sizes() == at::IntArrayRef({2, 15}));
}

TEST_CASE("generate rejects invalid arguments", "[generate]") {
  GPT model = small_model();
  const at::Tensor prompt = at::zeros({2, 3}, at::kLong);
  const auto rejects = [&](const GenerateOptions& options, const char* message) {
    CHECK_THROWS_WITH(generate(model, prompt, options), ContainsSubstring(message));
  };
  rejects({.new_tokens = -1}, "generate: expected new_tokens from 0 to 2^31 - 1, got -1");
  rejects({.new_tokens = INT64_MAX},
          "generate: expected new_tokens from 0 to 2^31 - 1, got 9223372036854775807");
  rejects({.temperature = -0.5}, "generate: expected a finite temperature of at least 0, got -0.5");
  rejects({.temperature = NAN}, "temperature of at least 0, got nan");
  rejects({.temperature = INFINITY}, "temperature of at least 0, got inf");
  rejects({.top_k = 0}, "generate: expected top_k above 0, got 0");
  rejects({.top_k = -3}, "generate: expected top_k above 0, got -3");
  for (const double p : {0.0, -0.1, 1.5, static_cast<double>(NAN)}) {
    rejects({.top_p = p}, "generate: expected top_p in (0, 1], got ");
  }

  const auto rejects_tokens = [&](const at::Tensor& tokens, const std::string& message) {
    CHECK_THROWS_WITH(generate(model, tokens, {.new_tokens = 1}), ContainsSubstring(message));
  };
  rejects_tokens(
      at::zeros({1, 0}, at::kLong),
      "generate: expected a prompt of at least one token, tokens (B, T) with T above 0, got "
      "[1, 0]");
  rejects_tokens(at::zeros({3}, at::kLong), "generate: expected token ids (B, T), got [3]");
  rejects_tokens(prompt.to(at::kInt), "generate: expected token ids of int64 (Long), got Int");
  rejects_tokens(at::Tensor(), "generate: expected token ids (B, T), got an undefined tensor");
  rejects_tokens(prompt.add(11),
                 "generate: expected token ids from 0 to vocab_size - 1 = 10, got 11 at [0, 0]");
  rejects_tokens(prompt.sub(1), "got -1 at [0, 0]");

  GPT none{nullptr};
  CHECK_THROWS_WITH(generate(none, prompt, {}),
                    ContainsSubstring("generate: expected a model, got an empty GPT"));
}
