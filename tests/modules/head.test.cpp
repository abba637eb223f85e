// SPDX-License-Identifier: MIT
#include "mini/head.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "support/attention_support.h"
#include "support/module_support.h"
#include "support/threads.h"

using namespace mini;
using namespace mini::test;

namespace {

at::Tensor fixture(const char* name) {
  std::ifstream file(std::string(MINI_FIXTURES) + "/golden.json");
  const nlohmann::json value = nlohmann::json::parse(file)["head"][name];
  if (!value[0].is_array()) {
    return torch::tensor(value.get<std::vector<double>>());
  }
  std::vector<at::Tensor> rows;
  for (const auto& row : value) {
    rows.push_back(torch::tensor(row.get<std::vector<double>>()));
  }
  return at::stack(rows);
}

std::vector<at::Tensor> weights_of(const Head& head) {
  return {head->query->weight, head->key->weight, head->value->weight};
}

}  // namespace

TEST_CASE("Head reproduces the numbers of the lesson", "[head]") {
  torch::manual_seed(42);
  const at::Tensor x = at::randn({1, 4, 128});
  Head head(HeadOptions(128, 32));
  // ATen's vector code and its scalar code draw normal numbers that differ in the last bits.
  CHECK_THAT(x[0][0].narrow(0, 0, 4), AllClose(fixture("x_first_row_first_4"), 3e-7, 1e-7));
  const char* names[] = {"query_weight_first_row_first_4", "key_weight_first_row_first_4",
                         "value_weight_first_row_first_4"};
  for (size_t i = 0; i < 3; ++i) {
    CHECK_THAT(weights_of(head)[i][0].narrow(0, 0, 4), AllClose(fixture(names[i]), 0, 1e-7));
  }
  const AttentionSteps steps = head->attention_steps(x);
  CHECK_THAT(steps.scores[0], AllClose(fixture("scores"), 0, 5e-6));
  CHECK_THAT(steps.weights[0], AllClose(fixture("scaled_weights"), 0, 1e-6));
  CHECK_THAT(steps.output[0].narrow(1, 0, 4),
             AllClose(fixture("output_scaled_first_4_columns"), 0, 1e-6));
  CHECK_THAT(head(x), AllClose(steps.output, 0, 1e-6));
}

TEST_CASE("Head applies attention to its three projections", "[head]") {
  Head head(HeadOptions(12, 5).seed(1));
  const at::Tensor x = at::randn({2, 6, 12});
  const at::Tensor q = at::matmul(x, head->query->weight.t());
  const at::Tensor k = at::matmul(x, head->key->weight.t());
  const at::Tensor v = at::matmul(x, head->value->weight.t());
  const at::Tensor weights = at::softmax(at::matmul(q, k.transpose(1, 2)) / std::sqrt(5.0), -1);
  CHECK_THAT(head(x), AllClose(at::matmul(weights, v), 1e-5, 1e-6));
  CHECK_THAT(head->attention_steps(x).weights, AllClose(weights, 1e-5, 1e-6));
  CHECK(head(x).sizes() == at::IntArrayRef({2, 6, 5}));
}

TEST_CASE("Head accepts any number of leading dimensions, including none", "[head]") {
  Head head(HeadOptions(12, 5).seed(1));
  const at::Tensor x = at::randn({2, 3, 6, 12});
  const at::Tensor all = head(x);
  CHECK(all.sizes() == at::IntArrayRef({2, 3, 6, 5}));
  CHECK_THAT(head(x[1][2]), AllClose(all[1][2], 1e-5, 1e-6));
  CHECK(head(at::randn({2, 0, 12})).sizes() == at::IntArrayRef({2, 0, 5}));
  CHECK(head(at::randn({0, 6, 12})).sizes() == at::IntArrayRef({0, 6, 5}));
}

TEST_CASE("Head registers query, key and value, in that order and without bias", "[head]") {
  Head head(HeadOptions(12, 5));
  std::vector<std::string> names;
  for (const auto& parameter : head->named_parameters()) {
    names.push_back(parameter.key());
    CHECK(parameter.value().sizes() == at::IntArrayRef({5, 12}));
    CHECK(parameter.value().requires_grad());
  }
  CHECK(names == std::vector<std::string>{"query.weight", "key.weight", "value.weight"});
  CHECK(head->buffers().empty());
}

TEST_CASE("equal seeds give equal Heads", "[head]") {
  const Head first(HeadOptions(128, 32).seed(42));
  at::rand({17});
  const Head other_module(HeadOptions(7, 3));
  const Head second(HeadOptions(128, 32).seed(42));
  const Head third(HeadOptions(128, 32).seed(43));
  Head in_a_thread{nullptr};
  std::thread([&] { in_a_thread = Head(HeadOptions(128, 32).seed(42)); }).join();
  for (size_t i = 0; i < 3; ++i) {
    CHECK_THAT(weights_of(second)[i], Equals(weights_of(first)[i]));
    CHECK_THAT(weights_of(in_a_thread)[i], Equals(weights_of(first)[i]));
    CHECK_FALSE(at::equal(weights_of(third)[i], weights_of(first)[i]));
  }
  SECTION("its three projections differ") {
    CHECK_FALSE(at::equal(first->query->weight, first->key->weight));
    CHECK_FALSE(at::equal(first->key->weight, first->value->weight));
    CHECK_FALSE(at::equal(first->query->weight, first->value->weight));
  }
  SECTION("the weights are those of three Linear drawn in order with that seed") {
    torch::manual_seed(42);
    for (const at::Tensor& weight : weights_of(first)) {
      torch::nn::Linear linear(torch::nn::LinearOptions(128, 32).bias(false));
      CHECK_THAT(weight, Equals(linear->weight));
    }
  }
  SECTION("its projections have the options of an ordinary Linear") {
    for (const torch::nn::Linear& linear : {first->query, first->key, first->value}) {
      CHECK(linear->options.in_features() == 128);
      CHECK(linear->options.out_features() == 32);
    }
  }
  SECTION("the weights do not depend on the number of threads") {
    const Threads three(3);
    const Head threaded(HeadOptions(128, 32).seed(42));
    CHECK_THAT(threaded->query->weight, Equals(first->query->weight));
  }
}

TEST_CASE("a seeded Head does not use the global generator", "[head]") {
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  const Head head(HeadOptions(128, 32).seed(42));
  CHECK_THAT(at::rand({5}), Equals(expected));
}

TEST_CASE("a Head without a seed draws from the global generator", "[head]") {
  torch::manual_seed(5);
  const Head first(HeadOptions(16, 4));
  const Head next(HeadOptions(16, 4));
  torch::manual_seed(5);
  const Head again(HeadOptions(16, 4));
  CHECK_THAT(again->query->weight, Equals(first->query->weight));
  CHECK_FALSE(at::equal(next->query->weight, first->query->weight));
}

TEST_CASE("Head passes its options to attention", "[head]") {
  const at::Tensor x = at::randn({2, 6, 12});
  Head plain(HeadOptions(12, 5).seed(1));
  const at::Tensor q = plain->query->forward(x), k = plain->key->forward(x),
                   v = plain->value->forward(x);
  const at::Tensor keep = at::rand({2, 6, 6}).gt(0.4);
  SECTION("causal") {
    Head head(HeadOptions(12, 5).seed(1).causal(true));
    CHECK_THAT(head(x), Equals(mini::scaled_dot_product_attention(
                            q, k, v, {.causal = Causal::kLowerRight})));
    CHECK_THAT(head->attention_steps(x).weights.triu(1), Equals(at::zeros({2, 6, 6})));
  }
  SECTION("scale") {
    Head head(HeadOptions(12, 5).seed(1).scale(1.0));
    CHECK_THAT(head(x), Equals(mini::scaled_dot_product_attention(q, k, v, {.scale = 1.0})));
  }
  SECTION("mask") {
    Head head(HeadOptions(12, 5).seed(1));
    CHECK_THAT(head(x, keep), Equals(mini::scaled_dot_product_attention(q, k, v, {.mask = keep})));
    CHECK_THAT(head->attention_steps(x, keep).weights.masked_select(keep.logical_not()),
               Equals(at::zeros({keep.logical_not().sum().item<int64_t>()})));
  }
}

TEST_CASE("Head applies dropout in training mode only", "[head]") {
  const at::Tensor x = at::randn({2, 6, 12});
  Head head(HeadOptions(12, 5).seed(1).dropout(0.5));
  Head plain(HeadOptions(12, 5).seed(1));
  torch::nn::Sequential model(head);
  CHECK_FALSE(at::equal(head(x), head(x)));
  torch::manual_seed(3);
  const at::Tensor first = head(x);
  torch::manual_seed(3);
  CHECK_THAT(head(x), Equals(first));

  model->eval();  // eval() of the parent reaches the head
  CHECK_THAT(head(x), Equals(head(x)));
  CHECK_THAT(head(x), AllClose(plain(x), 0, 1e-6));
  model->train();
  CHECK_FALSE(at::equal(head(x), head(x)));
}

TEST_CASE("Head supports clone, save, load and conversion", "[head]") {
  const at::Tensor x = at::randn({2, 6, 12});
  Head head(HeadOptions(12, 5).causal(true).scale(0.3));
  SECTION("a clone is equal and independent") {
    const auto clone = std::dynamic_pointer_cast<HeadImpl>(head->clone());
    REQUIRE(clone);
    CHECK_THAT(clone->forward(x), Equals(head(x)));
    {
      const at::NoGradGuard no_grad;
      clone->query->weight.zero_();
    }
    CHECK_FALSE(at::equal(clone->forward(x), head(x)));
    CHECK(clone->query->weight.data_ptr() != head->query->weight.data_ptr());
  }
  SECTION("torch::save and torch::load restore the weights") {
    std::stringstream stream;
    torch::save(head, stream);
    Head loaded(HeadOptions(12, 5).causal(true).scale(0.3));
    CHECK_FALSE(at::equal(loaded(x), head(x)));
    torch::load(loaded, stream);
    CHECK_THAT(loaded(x), Equals(head(x)));
  }
  SECTION("to() converts it to another dtype") {
    const at::Tensor expected = head(x);
    head->to(at::kDouble);
    CHECK(head(x.to(at::kDouble)).scalar_type() == at::kDouble);
    CHECK_THAT(head(x.to(at::kDouble)), AllClose(expected, 1e-4, 1e-5));
  }
}

TEST_CASE("Head works in Sequential, and in AnyModule with a mask", "[head]") {
  Head head(HeadOptions(12, 5).seed(1));
  torch::nn::Sequential model(head, torch::nn::Linear(5, 2));
  CHECK(model->forward(at::randn({2, 6, 12})).sizes() == at::IntArrayRef({2, 6, 2}));
  torch::nn::AnyModule any(head);
  const at::Tensor x = at::randn({2, 6, 12});
  const std::optional<at::Tensor> keep = at::ones({6, 6}, at::kBool).tril();
  CHECK_THAT(any.forward(x, keep), Equals(head(x, keep)));
}

TEST_CASE("training a Head reduces its loss", "[head]") {
  torch::manual_seed(0);
  Head head(HeadOptions(8, 4).seed(1));
  const at::Tensor x = at::randn({4, 6, 8}), target = at::randn({4, 6, 4});
  torch::optim::SGD optimizer(head->parameters(), 0.5);
  const auto loss = [&] { return torch::mse_loss(head(x), target); };
  const double before = loss().item<double>();
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    loss().backward();
    for (const at::Tensor& parameter : head->parameters()) {
      REQUIRE(parameter.grad().defined());
    }
    optimizer.step();
  }
  CHECK(loss().item<double>() < before);
}

TEST_CASE("Head prints its constructor call", "[head]") {
  CHECK(printed(*Head(HeadOptions(128, 32))) == "mini::Head(n_embd=128, head_size=32)");
  CHECK(printed(*Head(HeadOptions(128, 32).causal(true).dropout(0.1).scale(1.0).seed(42))) ==
        "mini::Head(n_embd=128, head_size=32, causal=true, dropout=0.1, scale=1, seed=42)");
}

TEST_CASE("Head rejects invalid options and inputs", "[head]") {
  CHECK_THROWS_WITH(Head(HeadOptions(0, 32)),
                    ContainsSubstring("Head: expected n_embd and head_size above 0, got n_embd 0"));
  CHECK_THROWS_WITH(Head(HeadOptions(128, -1)), ContainsSubstring("and head_size -1"));
  CHECK_THROWS_WITH(Head(HeadOptions(128, 32).dropout(1.5)),
                    ContainsSubstring("Head: expected a dropout probability in [0, 1], got 1.5"));
  CHECK_THROWS_WITH(Head(HeadOptions(128, 32).dropout(NAN)), ContainsSubstring("[0, 1], got nan"));
  CHECK_THROWS_WITH(Head(HeadOptions(128, 32).scale(INFINITY)),
                    ContainsSubstring("Head: expected a finite scale, got inf"));

  Head head(HeadOptions(12, 5));
  CHECK_THROWS_WITH(head(at::zeros({2, 6, 11})),
                    ContainsSubstring("Head::forward: expected x (..., T, C) with C = n_embd = 12, "
                                      "got [2, 6, 11]"));
  CHECK_THROWS_WITH(head->attention_steps(at::zeros({12})),
                    ContainsSubstring("Head::attention_steps: expected x (..., T, C)"));
  CHECK_THROWS_WITH(head(at::Tensor()), ContainsSubstring("got an undefined tensor"));
  CHECK_THROWS_WITH(head(at::zeros({2, 6, 12}, at::kDouble)),
                    ContainsSubstring("must share a dtype, got x Double and weights Float"));
  CHECK_THROWS_WITH(head(at::zeros({2, 6, 12}, at::kMeta)),
                    ContainsSubstring("must be on one device, got x meta and weights cpu"));
  CHECK_THROWS_WITH(head(at::zeros({2, 6, 12}), at::ones({2, 5}, at::kBool)),
                    ContainsSubstring("broadcasts to the scores [2, 6, 6], got [2, 5]"));
}
