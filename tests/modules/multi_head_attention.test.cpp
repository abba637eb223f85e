// SPDX-License-Identifier: MIT
#include "mini/multi_head_attention.h"

#include <cmath>
#include <vector>

#include "mini/head.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Options = MultiHeadAttentionOptions;

// A Head with the options of `attention` and the weights of its head `index`.
Head single_head(const MultiHeadAttention& attention, int64_t index) {
  const Options& options = attention->options;
  Head head(HeadOptions(options.n_embd(), options.n_embd() / options.n_head())
                .causal(options.causal())
                .scale(options.scale()));
  const at::NoGradGuard no_grad;
  head->query->weight.copy_(rows_of_head(attention, 0, index));
  head->key->weight.copy_(rows_of_head(attention, 1, index));
  head->value->weight.copy_(rows_of_head(attention, 2, index));
  return head;
}

// One part of c_attn's output. part: 0 queries, 1 keys, 2 values.  (B, nh, T, hs)
at::Tensor heads_of(const MultiHeadAttention& attention, const at::Tensor& x, int64_t part) {
  const int64_t C = attention->options.n_embd(), nh = attention->options.n_head();
  const at::Tensor packed = at::linear(x, attention->c_attn->weight, attention->c_attn->bias);
  return packed.narrow(-1, part * C, C)
      .reshape({x.size(0), x.size(1), nh, C / nh})
      .permute({0, 2, 1, 3});
}

}  // namespace

TEST_CASE("MultiHeadAttention equals concatenated Heads and a projection",
          "[multi_head_attention]") {
  const at::Tensor x = at::randn({2, 6, 12});
  for (const int64_t n_head : {1, 3, 4}) {
    for (const bool causal : {false, true}) {
      for (const std::optional<double> scale : {std::optional<double>(), std::optional(0.7)}) {
        INFO("n_head " << n_head << ", causal " << causal << ", scale " << scale.value_or(0));
        MultiHeadAttention attention(Options(12, n_head).seed(1).causal(causal).scale(scale));
        const AttentionSteps steps = attention->attention_steps(x);
        std::vector<at::Tensor> outputs;
        for (int64_t h = 0; h < n_head; ++h) {
          Head head = single_head(attention, h);
          outputs.push_back(head(x));
          const AttentionSteps expected = head->attention_steps(x);
          CHECK_THAT(steps.scores.select(1, h), AllClose(expected.scores, 1e-5, 1e-6));
          CHECK_THAT(steps.scaled_scores.select(1, h),
                     AllClose(expected.scaled_scores, 1e-5, 1e-6));
          CHECK_THAT(steps.weights.select(1, h), AllClose(expected.weights, 1e-5, 1e-6));
          CHECK_THAT(steps.output.select(1, h), AllClose(expected.output, 1e-5, 1e-6));
        }
        const at::Tensor expected = at::matmul(at::cat(outputs, -1), attention->c_proj->weight.t());
        CHECK_THAT(attention(x), AllClose(expected, 1e-5, 1e-6));
      }
    }
  }
}

TEST_CASE("MultiHeadAttention accepts any number of leading dimensions, including none",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).seed(1));
  const at::Tensor x = at::randn({2, 3, 6, 12});
  const at::Tensor all = attention(x);
  CHECK(all.sizes() == x.sizes());
  CHECK_THAT(attention(x[1]), AllClose(all[1], 1e-5, 1e-6));
  CHECK_THAT(attention(x[1][2]), AllClose(all[1][2], 1e-5, 1e-6));
  CHECK(attention(at::randn({2, 0, 12})).sizes() == at::IntArrayRef({2, 0, 12}));
  CHECK(attention(at::randn({0, 6, 12})).sizes() == at::IntArrayRef({0, 6, 12}));
  CHECK(attention->attention_steps(at::randn({0, 6, 12})).weights.sizes() ==
        at::IntArrayRef({0, 3, 6, 6}));
}

TEST_CASE("MultiHeadAttention adds its biases", "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).bias(true).seed(1));
  const at::Tensor x = at::randn({2, 6, 12});
  const at::Tensor heads = mini::scaled_dot_product_attention(
      heads_of(attention, x, 0), heads_of(attention, x, 1), heads_of(attention, x, 2));
  const at::Tensor expected = at::linear(heads.transpose(1, 2).reshape({2, 6, 12}),
                                         attention->c_proj->weight, attention->c_proj->bias);
  CHECK_THAT(attention(x), AllClose(expected, 1e-5, 1e-6));
  CHECK(attention->c_attn->bias.abs().min().item<double>() > 0);
  CHECK(attention->c_proj->bias.abs().min().item<double>() > 0);
}

TEST_CASE("MultiHeadAttention applies the mask to every head", "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).seed(1));
  const at::Tensor x = at::randn({2, 6, 12});
  for (const at::Tensor& keep :
       {at::rand({6, 6}).gt(0.4), at::rand({2, 1, 6, 6}).gt(0.4), at::rand({2, 3, 6, 6}).gt(0.4)}) {
    INFO(keep.sizes());
    const AttentionSteps steps = attention->attention_steps(x, keep);
    CHECK(steps.weights.masked_select(keep.logical_not()).abs().sum().item<double>() == 0);
    const at::Tensor expected =
        at::matmul(steps.output.transpose(1, 2).reshape({2, 6, 12}), attention->c_proj->weight.t());
    CHECK_THAT(attention(x, keep), AllClose(expected, 1e-5, 1e-6));
    CHECK_FALSE(at::allclose(attention(x, keep), attention(x)));
  }
  CHECK_THROWS_WITH(attention(x, at::ones({2, 6, 6}, at::kBool)),
                    ContainsSubstring("[2, 3, 6, 6], got [2, 6, 6]"));
}

TEST_CASE("MultiHeadAttention has the gradients of its equation", "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).bias(true).causal(true).seed(1));
  const at::Tensor x = at::randn({2, 6, 12}).requires_grad_();
  const at::Tensor upstream = at::randn({2, 6, 12});
  std::vector<at::Tensor> inputs = attention->parameters();
  inputs.push_back(x);
  const at::Tensor weights =
      at::softmax((at::matmul(heads_of(attention, x, 0), heads_of(attention, x, 1).mT()) / 2.0)
                      .masked_fill(at::ones({6, 6}, at::kBool).triu(1), -INFINITY),
                  -1);
  const at::Tensor reference =
      at::linear(at::matmul(weights, heads_of(attention, x, 2)).transpose(1, 2).flatten(2),
                 attention->c_proj->weight, attention->c_proj->bias);
  const auto expected = torch::autograd::grad({reference}, inputs, {upstream});
  const auto actual = torch::autograd::grad({attention(x)}, inputs, {upstream});
  for (size_t i = 0; i < inputs.size(); ++i) {
    CHECK_THAT(actual[i], AllClose(expected[i], 1e-4, 1e-5));
  }
}

TEST_CASE("causal MultiHeadAttention computes the same in pieces with a cache as in one call",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).causal(true).bias(true).seed(1));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 9, 12});
  const at::Tensor expected = attention(x);
  KvCache cache(9);
  std::vector<at::Tensor> pieces;
  int64_t done = 0;
  for (const int64_t length : {3, 1, 4, 1}) {
    pieces.push_back(attention->forward(x.narrow(1, done, length), {}, &cache));
    done += length;
    CHECK(cache.length() == done);
  }
  CHECK_THAT(at::cat(pieces, 1), AllClose(expected, 1e-5, 1e-6));
  CHECK_THAT(cache.keys(), AllClose(heads_of(attention, x, 1), 1e-5, 1e-6));
  CHECK_THAT(cache.values(), AllClose(heads_of(attention, x, 2), 1e-5, 1e-6));
}

TEST_CASE("with a cache, the mask covers all cached keys", "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).seed(1));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 5, 12});
  const at::Tensor keep = at::rand({2, 5}).gt(0.3);  // for the last two queries and all keys
  KvCache cache(8);
  attention->forward(x.narrow(1, 0, 3), {}, &cache);
  const at::Tensor actual = attention->forward(x.narrow(1, 3, 2), keep, &cache);
  const at::Tensor all_keep = at::cat({at::ones({3, 5}, at::kBool), keep});
  CHECK_THAT(actual, AllClose(attention(x, all_keep).narrow(1, 3, 2), 1e-5, 1e-6));
}

TEST_CASE("after an error of MultiHeadAttention the cache is unchanged", "[multi_head_attention]") {
  const at::NoGradGuard no_grad;
  MultiHeadAttention attention(MultiHeadAttentionOptions(12, 3).causal(true).seed(5));
  const at::Tensor x = at::randn({2, 5, 12});
  const at::Tensor expected = attention(x);
  KvCache cache(8);
  attention->forward(x.narrow(1, 0, 3), {}, &cache);
  CHECK_THROWS_WITH(attention->forward(x.narrow(1, 3, 2), at::ones({2, 7}, at::kBool), &cache),
                    ContainsSubstring("mask"));
  CHECK(cache.length() == 3);
  CHECK_THAT(attention->forward(x.narrow(1, 3, 2), {}, &cache),
             AllClose(expected.narrow(1, 3, 2), 1e-5, 1e-6));
}

TEST_CASE("MultiHeadAttention rejects a cache that is too small or would lose gradients",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3));
  KvCache cache(4);
  CHECK_THROWS_WITH(attention->forward(at::zeros({2, 3, 12}), {}, &cache),
                    ContainsSubstring("that require no gradients"));
  const at::NoGradGuard no_grad;
  CHECK_THROWS_WITH(attention->forward(at::zeros({2, 5, 12}), {}, &cache),
                    ContainsSubstring("at most 4 more positions (capacity 4, length 0), got 5"));
  CHECK_THROWS_WITH(attention->forward(at::zeros({3, 12}), {}, &cache),
                    ContainsSubstring("expected k and v (B, nh, T, hs)"));
  CHECK(cache.length() == 0);
}

TEST_CASE("causal MultiHeadAttention does not depend on later positions",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).causal(true).seed(1));
  const at::Tensor x = at::randn({2, 6, 12});
  at::Tensor changed = x.clone();
  changed.narrow(1, 3, 3).add_(10);
  CHECK_THAT(attention(changed).narrow(1, 0, 3), AllClose(attention(x).narrow(1, 0, 3), 0, 1e-6));
  CHECK_THAT(attention->attention_steps(x).weights.triu(1), Equals(at::zeros({2, 3, 6, 6})));
}

TEST_CASE("MultiHeadAttention applies dropout in training mode only", "[multi_head_attention]") {
  const at::Tensor x = at::randn({2, 6, 12});
  MultiHeadAttention attention(Options(12, 3).seed(1).dropout(0.5));
  MultiHeadAttention plain(Options(12, 3).seed(1));
  torch::nn::Sequential model(attention);
  CHECK_FALSE(at::equal(attention(x), attention(x)));
  torch::manual_seed(3);
  const at::Tensor first = attention(x);
  torch::manual_seed(3);
  CHECK_THAT(attention(x), Equals(first));

  model->eval();  // eval() of the parent reaches the module
  CHECK_THAT(attention(x), Equals(attention(x)));
  CHECK_THAT(attention(x), Equals(plain(x)));
  model->train();
  CHECK_FALSE(at::equal(attention(x), attention(x)));

  SECTION("dropout acts on the weights and on the output") {
    const at::NoGradGuard no_grad;
    attention->c_proj->weight.copy_(at::eye(12));  // the output is the concatenated heads
    plain->c_proj->weight.copy_(at::eye(12));
    torch::manual_seed(3);
    const at::Tensor output = attention(x), undropped = plain(x);
    const at::Tensor kept = output.ne(0);
    const double share = kept.to(at::kFloat).mean().item<double>();
    CHECK(share > 0.35);
    CHECK(share < 0.65);  // half of the output: a row rarely loses all its weights
    CHECK_FALSE(at::allclose(output.masked_select(kept), 2 * undropped.masked_select(kept)));
  }
  SECTION("attention_steps returns the weights before dropout and the output after it") {
    CHECK_THAT(attention->attention_steps(x).weights,
               AllClose(plain->attention_steps(x).weights, 1e-5, 1e-6));
    CHECK_FALSE(
        at::allclose(attention->attention_steps(x).output, plain->attention_steps(x).output));
  }
  SECTION("probability 1 gives an output and gradients of zero") {
    MultiHeadAttention all(Options(12, 3).dropout(1.0));
    const at::Tensor output = all(x);
    CHECK_THAT(output, Equals(at::zeros({2, 6, 12})));
    output.sum().backward();
    CHECK_THAT(all->c_attn->weight.grad(), Equals(at::zeros({36, 12})));
  }
}

TEST_CASE("MultiHeadAttention works in Sequential, and in AnyModule with a mask",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).seed(1));
  torch::nn::Sequential model(attention, torch::nn::Linear(12, 2));
  const at::Tensor x = at::randn({2, 6, 12});
  CHECK(model->forward(x).sizes() == at::IntArrayRef({2, 6, 2}));
  torch::nn::AnyModule any(attention);
  const std::optional<at::Tensor> keep = at::ones({6, 6}, at::kBool).tril();
  CHECK_THAT(any.forward(x, keep), Equals(attention(x, keep)));
}

TEST_CASE("MultiHeadAttention prints its constructor call", "[multi_head_attention]") {
  CHECK(printed(*MultiHeadAttention(Options(128, 4))) ==
        "mini::MultiHeadAttention(n_embd=128, n_head=4)");
  CHECK(printed(*MultiHeadAttention(
            Options(128, 4).bias(true).causal(true).dropout(0.1).scale(1.0).seed(42))) ==
        "mini::MultiHeadAttention(n_embd=128, n_head=4, bias=true, causal=true, dropout=0.1, "
        "scale=1, seed=42)");
}

TEST_CASE("MultiHeadAttention rejects invalid options and inputs", "[multi_head_attention]") {
  const auto rejects = [](const Options& options, const char* message) {
    CHECK_THROWS_WITH(MultiHeadAttention(options), ContainsSubstring(message));
  };
  rejects(
      Options(128, 3),
      "MultiHeadAttention: expected n_embd to be a multiple of n_head, both above 0, got n_embd "
      "128 and n_head 3");
  rejects(Options(0, 4), "got n_embd 0 and n_head 4");
  rejects(Options(128, 0), "got n_embd 128 and n_head 0");
  rejects(Options(-4, 2), "got n_embd -4 and n_head 2");
  rejects(Options(128, 4).dropout(-0.1), "expected a dropout probability in [0, 1], got -0.1");
  rejects(Options(128, 4).dropout(NAN), "[0, 1], got nan");
  rejects(Options(128, 4).scale(NAN), "MultiHeadAttention: expected a finite scale, got nan");

  MultiHeadAttention attention(Options(12, 3));
  CHECK_THROWS_WITH(
      attention(at::zeros({2, 6, 11})),
      ContainsSubstring("MultiHeadAttention::forward: expected x (..., T, C) with C = "
                        "n_embd = 12, got [2, 6, 11]"));
  CHECK_THROWS_WITH(attention->attention_steps(at::zeros({12})),
                    ContainsSubstring("MultiHeadAttention::attention_steps: expected x"));
  CHECK_THROWS_WITH(attention->project(at::zeros({12})),
                    ContainsSubstring("MultiHeadAttention::project: expected x"));
  CHECK_THROWS_WITH(attention(at::Tensor()), ContainsSubstring("got an undefined tensor"));
  CHECK_THROWS_WITH(attention(at::zeros({2, 6, 12}, at::kDouble)),
                    ContainsSubstring("must share a dtype, got x Double and weights Float"));
  CHECK_THROWS_WITH(attention(at::zeros({2, 6, 12}, at::kMeta)),
                    ContainsSubstring("must be on one device, got x meta and weights cpu"));
}
