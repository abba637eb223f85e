// SPDX-License-Identifier: MIT
#include "mini/multi_head_attention.h"

#include <cmath>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "mini/head.h"
#include "support/module_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Options = MultiHeadAttentionOptions;

// Rows of c_attn's weight that are one head's: which = 0 queries, 1 keys, 2 values.  (hs, C)
at::Tensor rows_of_head(const MultiHeadAttention& attention, int64_t which, int64_t head) {
  const int64_t C = attention->options.n_embd(), hs = C / attention->options.n_head();
  return attention->c_attn->weight.detach().narrow(0, which * C + head * hs, hs);
}

// A Head with the weights and the options of one of the heads.
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

// Attention's own packed product, cut by hand: which = 0 q, 1 k, 2 v.  (B, nh, T, hs)
at::Tensor heads_of(const MultiHeadAttention& attention, const at::Tensor& x, int64_t which) {
  const int64_t C = attention->options.n_embd(), nh = attention->options.n_head();
  const at::Tensor packed = at::linear(x, attention->c_attn->weight, attention->c_attn->bias);
  return packed.narrow(-1, which * C, C)
      .reshape({x.size(0), x.size(1), nh, C / nh})
      .permute({0, 2, 1, 3});
}

}  // namespace

TEST_CASE("multi-head attention is its heads side by side, then a projection",
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

TEST_CASE("multi-head attention takes any number of leading dimensions, and none",
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

TEST_CASE("multi-head attention registers nanoGPT's parameters", "[multi_head_attention]") {
  MultiHeadAttention plain(Options(12, 3));
  CHECK(parameter_names(*plain) == std::vector<std::string>{"c_attn.weight", "c_proj.weight"});
  MultiHeadAttention with_bias(Options(12, 3).bias(true));
  CHECK(parameter_names(*with_bias) ==
        std::vector<std::string>{"c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias"});
  CHECK(with_bias->c_attn->weight.sizes() == at::IntArrayRef({36, 12}));
  CHECK(with_bias->c_attn->bias.sizes() == at::IntArrayRef({36}));
  CHECK(with_bias->c_proj->weight.sizes() == at::IntArrayRef({12, 12}));
  CHECK(with_bias->buffers().empty());
  for (const at::Tensor& parameter : with_bias->parameters()) {
    CHECK(parameter.requires_grad());
  }
}

TEST_CASE("multi-head attention adds its biases", "[multi_head_attention]") {
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

TEST_CASE("a mask reaches every head of multi-head attention", "[multi_head_attention]") {
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

TEST_CASE("multi-head attention gives the gradients of its equation", "[multi_head_attention]") {
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

TEST_CASE("with a cache, causal attention piece by piece is attention at once",
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

TEST_CASE("a mask over a cache spans all that it holds", "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).seed(1));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 5, 12});
  const at::Tensor keep = at::rand({2, 5}).gt(0.3);  // the last two queries, all keys
  KvCache cache(8);
  attention->forward(x.narrow(1, 0, 3), {}, &cache);
  const at::Tensor actual = attention->forward(x.narrow(1, 3, 2), keep, &cache);
  const at::Tensor all_keep = at::cat({at::ones({3, 5}, at::kBool), keep});
  CHECK_THAT(actual, AllClose(attention(x, all_keep).narrow(1, 3, 2), 1e-5, 1e-6));
}

TEST_CASE("a cache that loses gradients or does not fit is refused", "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3));
  KvCache cache(4);
  CHECK_THROWS_WITH(attention->forward(at::zeros({2, 3, 12}), {}, &cache),
                    ContainsSubstring("that need no gradient"));
  const at::NoGradGuard no_grad;
  CHECK_THROWS_WITH(attention->forward(at::zeros({2, 5, 12}), {}, &cache),
                    ContainsSubstring("at most 4 more positions (capacity 4, length 0), got 5"));
  CHECK_THROWS_WITH(attention->forward(at::zeros({3, 12}), {}, &cache),
                    ContainsSubstring("expected k and v (B, nh, T, hs)"));
  CHECK(cache.length() == 0);
}

TEST_CASE("the future does not leak through causal multi-head attention",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).causal(true).seed(1));
  const at::Tensor x = at::randn({2, 6, 12});
  at::Tensor changed = x.clone();
  changed.narrow(1, 3, 3).add_(10);
  CHECK_THAT(attention(changed).narrow(1, 0, 3), AllClose(attention(x).narrow(1, 0, 3), 0, 1e-6));
  CHECK_THAT(attention->attention_steps(x).weights.triu(1), Equals(at::zeros({2, 3, 6, 6})));
}

TEST_CASE("seeded multi-head attention has the same weights whenever it is built",
          "[multi_head_attention]") {
  const Options options = Options(24, 4).bias(true).seed(42);
  const MultiHeadAttention first(options);
  at::rand({17});
  const MultiHeadAttention second(options);
  MultiHeadAttention in_a_thread{nullptr};
  std::thread([&] { in_a_thread = MultiHeadAttention(options); }).join();
  check_same_parameters(*second, *first);
  check_same_parameters(*in_a_thread, *first);
  const MultiHeadAttention other(Options(24, 4).bias(true).seed(43));
  CHECK_FALSE(at::equal(other->c_attn->weight, first->c_attn->weight));

  SECTION("they are the weights of two Linear drawn in order under that seed") {
    torch::manual_seed(42);
    const torch::nn::Linear c_attn(24, 72), c_proj(24, 24);
    CHECK_THAT(first->c_attn->weight, Equals(c_attn->weight));
    CHECK_THAT(first->c_attn->bias, Equals(c_attn->bias));
    CHECK_THAT(first->c_proj->weight, Equals(c_proj->weight));
    CHECK_THAT(first->c_proj->bias, Equals(c_proj->bias));
  }
  SECTION("the projections know their sizes") {
    CHECK(first->c_attn->options.in_features() == 24);
    CHECK(first->c_attn->options.out_features() == 72);
    CHECK(first->c_attn->options.bias());
    CHECK(first->c_proj->options.out_features() == 24);
  }
  SECTION("the global generator is left alone") {
    torch::manual_seed(7);
    const at::Tensor expected = at::rand({5});
    torch::manual_seed(7);
    const MultiHeadAttention again(options);
    CHECK_THAT(at::rand({5}), Equals(expected));
  }
}

TEST_CASE("multi-head attention without a seed follows the global generator",
          "[multi_head_attention]") {
  torch::manual_seed(5);
  const MultiHeadAttention first(Options(12, 3));
  const MultiHeadAttention next(Options(12, 3));
  torch::manual_seed(5);
  const MultiHeadAttention again(Options(12, 3));
  check_same_parameters(*again, *first);
  CHECK_FALSE(at::equal(next->c_attn->weight, first->c_attn->weight));
}

TEST_CASE("no two heads of one module share weights", "[multi_head_attention]") {
  const MultiHeadAttention attention(Options(32, 4).seed(42));
  std::vector<at::Tensor> parts;  // (hs, C)
  for (int64_t which = 0; which < 3; ++which) {
    for (int64_t head = 0; head < 4; ++head) {
      parts.push_back(rows_of_head(attention, which, head));
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      CHECK_FALSE(at::allclose(parts[i], parts[j], 0, 1e-3));
    }
  }
  // Equal heads would stack to the rank of one.
  const auto rank = [](const at::Tensor& matrix) {
    return at::linalg_svdvals(matrix).gt(1e-3).sum().item<int64_t>();
  };
  for (int64_t which = 0; which < 3; ++which) {
    CHECK(rank(rows_of_head(attention, which, 0)) == 8);
    CHECK(rank(attention->c_attn->weight.detach().narrow(0, which * 32, 32)) > 24);
  }
}

TEST_CASE("multi-head attention's dropout acts in training and not in evaluation",
          "[multi_head_attention]") {
  const at::Tensor x = at::randn({2, 6, 12});
  MultiHeadAttention attention(Options(12, 3).seed(1).dropout(0.5));
  MultiHeadAttention plain(Options(12, 3).seed(1));
  torch::nn::Sequential model(attention);
  CHECK_FALSE(at::equal(attention(x), attention(x)));
  torch::manual_seed(3);
  const at::Tensor first = attention(x);
  torch::manual_seed(3);
  CHECK_THAT(attention(x), Equals(first));

  model->eval();  // the parent's mode reaches it
  CHECK_THAT(attention(x), Equals(attention(x)));
  CHECK_THAT(attention(x), Equals(plain(x)));
  model->train();
  CHECK_FALSE(at::equal(attention(x), attention(x)));

  SECTION("it acts on the weights and on the output") {
    const at::NoGradGuard no_grad;
    attention->c_proj->weight.copy_(at::eye(12));  // so that the output is the heads'
    plain->c_proj->weight.copy_(at::eye(12));
    torch::manual_seed(3);
    const at::Tensor output = attention(x), undropped = plain(x);
    const at::Tensor kept = output.ne(0);
    const double share = kept.to(at::kFloat).mean().item<double>();
    CHECK(share > 0.35);
    CHECK(share < 0.65);  // half of the output; a row whose weights are all dropped is rare
    CHECK_FALSE(at::allclose(output.masked_select(kept), 2 * undropped.masked_select(kept)));
  }
  SECTION("the steps' weights are those before dropout, the output is after it") {
    CHECK_THAT(attention->attention_steps(x).weights,
               AllClose(plain->attention_steps(x).weights, 1e-5, 1e-6));
    CHECK_FALSE(
        at::allclose(attention->attention_steps(x).output, plain->attention_steps(x).output));
  }
  SECTION("probability 1 gives zeros and gradients of zero") {
    MultiHeadAttention all(Options(12, 3).dropout(1.0));
    const at::Tensor output = all(x);
    CHECK_THAT(output, Equals(at::zeros({2, 6, 12})));
    output.sum().backward();
    CHECK_THAT(all->c_attn->weight.grad(), Equals(at::zeros({36, 12})));
  }
}

TEST_CASE("multi-head attention can be cloned, saved, loaded and converted",
          "[multi_head_attention]") {
  const at::Tensor x = at::randn({2, 6, 12});
  const Options options = Options(12, 3).causal(true).bias(true).scale(0.3);
  MultiHeadAttention attention(options);
  SECTION("a clone is equal and independent") {
    const auto clone = clone_of(attention);
    CHECK_THAT(clone->forward(x), Equals(attention(x)));
    {
      const at::NoGradGuard no_grad;
      clone->c_attn->weight.zero_();
    }
    CHECK_FALSE(at::equal(clone->forward(x), attention(x)));
  }
  SECTION("torch::save and torch::load bring the weights back") {
    std::stringstream stream;
    torch::save(attention, stream);
    MultiHeadAttention loaded(options);
    CHECK_FALSE(at::equal(loaded(x), attention(x)));
    torch::load(loaded, stream);
    CHECK_THAT(loaded(x), Equals(attention(x)));
  }
  SECTION("it moves to another dtype") {
    const at::Tensor expected = attention(x);
    attention->to(at::kDouble);
    CHECK_THAT(attention(x.to(at::kDouble)), AllClose(expected, 1e-4, 1e-5));
    attention->to(at::kBFloat16);
    const at::Tensor halves = attention(x.to(at::kBFloat16));
    CHECK(halves.scalar_type() == at::kBFloat16);
    CHECK_THAT(halves, AllClose(expected, 5e-2, 5e-2));  // bfloat16 has 8 bits
  }
}

TEST_CASE("multi-head attention works in Sequential, with or without a mask",
          "[multi_head_attention]") {
  MultiHeadAttention attention(Options(12, 3).seed(1));
  torch::nn::Sequential model(attention, torch::nn::Linear(12, 2));
  const at::Tensor x = at::randn({2, 6, 12});
  CHECK(model->forward(x).sizes() == at::IntArrayRef({2, 6, 2}));
  torch::nn::AnyModule any(attention);
  const std::optional<at::Tensor> keep = at::ones({6, 6}, at::kBool).tril();
  CHECK_THAT(any.forward(x, keep), Equals(attention(x, keep)));
}

TEST_CASE("multi-head attention prints as it is made", "[multi_head_attention]") {
  CHECK(printed(*MultiHeadAttention(Options(128, 4))) ==
        "mini::MultiHeadAttention(n_embd=128, n_head=4)");
  CHECK(printed(*MultiHeadAttention(
            Options(128, 4).bias(true).causal(true).dropout(0.1).scale(1.0).seed(42))) ==
        "mini::MultiHeadAttention(n_embd=128, n_head=4, bias=true, causal=true, dropout=0.1, "
        "scale=1, seed=42)");
}

TEST_CASE("multi-head attention refuses options and inputs that cannot be",
          "[multi_head_attention]") {
  const auto refused = [](const Options& options, const char* message) {
    CHECK_THROWS_WITH(MultiHeadAttention(options), ContainsSubstring(message));
  };
  refused(
      Options(128, 3),
      "MultiHeadAttention: expected n_embd to be a multiple of n_head, both above 0, got n_embd "
      "128 and n_head 3");
  refused(Options(0, 4), "got n_embd 0 and n_head 4");
  refused(Options(128, 0), "got n_embd 128 and n_head 0");
  refused(Options(-4, 2), "got n_embd -4 and n_head 2");
  refused(Options(128, 4).dropout(-0.1), "expected a dropout probability in [0, 1], got -0.1");
  refused(Options(128, 4).dropout(NAN), "[0, 1], got nan");
  refused(Options(128, 4).scale(NAN), "MultiHeadAttention: expected a finite scale, got nan");

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
