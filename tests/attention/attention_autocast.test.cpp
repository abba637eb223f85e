// SPDX-License-Identifier: MIT
// Attention under LibTorch's autocast.
#include "support/attention_support.h"
#include "support/autocast.h"
#include "support/error_of.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("autocast casts the inputs of attention, as those of LibTorch's", "[autocast]") {
  const auto dtype = GENERATE(at::kBFloat16, at::kHalf);
  const Inputs in = random_inputs({2, 3}, 5, 7, 8, 8);
  const at::Tensor mask = at::randn({5, 7});
  for (const Path& path : paths()) {
    INFO(path.name);
    const at::Tensor expected = path.output(in.to(dtype), {.mask = mask});
    const Autocast autocast(dtype);
    CHECK(libtorch_attention(in).scalar_type() == dtype);
    CHECK_THAT(path.output(in, {.mask = mask}), Equals(expected));
    CHECK(path.output(in, {.mask = mask}).scalar_type() == dtype);
    CHECK_THAT(path.output({in.q, in.k.to(dtype), in.v}, {.mask = mask}), Equals(expected));
  }
}

TEST_CASE("attention computes half types in float32 under autocast", "[autocast]") {
  const Inputs in = random_inputs({2}, 5, 7, 8, 8, at::kBFloat16);
  const AttentionSteps expected = attention_steps(in.q, in.k, in.v);
  const Autocast autocast;
  const AttentionSteps steps = attention_steps(in.q, in.k, in.v);
  CHECK(steps.scores.scalar_type() == at::kFloat);
  CHECK_THAT(steps.scores, Equals(expected.scores));
  CHECK_THAT(steps.weights, Equals(expected.weights));
  CHECK_THAT(steps.output, Equals(expected.output));
}

TEST_CASE("autocast leaves float64 inputs of attention unchanged", "[autocast]") {
  const Inputs in = random_inputs({2}, 5, 7, 8, 8, at::kDouble);
  for (const Path& path : paths()) {
    INFO(path.name);
    const at::Tensor expected = path.output(in, {});
    const Autocast autocast;
    CHECK_THAT(path.output(in, {}), Equals(expected));
    CHECK(path.output(in, {}).scalar_type() == at::kDouble);
    CHECK_THAT(error_of([&] { path.output(in.to(at::kLong), {}); }),
               ContainsSubstring("expected float32, float64, bfloat16 or float16, got Long"));
  }
}

TEST_CASE("autocast does not change gradients of half inputs", "[autocast]") {
  const Inputs in = random_inputs({2}, 5, 7, 8, 8, at::kBFloat16).requires_grad();
  const std::vector<at::Tensor> leaves = {in.q, in.k, in.v};
  const auto all_gradients = [&] {
    const at::Tensor output = attention(in);
    auto first = gradients(output, at::ones_like(output), leaves, /*create_graph=*/true);
    const at::Tensor sum = first[0].square().sum();
    auto second = gradients(sum, at::ones_like(sum), leaves);
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  const auto expected = all_gradients();
  const Autocast autocast;
  const auto actual = all_gradients();
  for (size_t i = 0; i < 3; ++i) CHECK_THAT(actual[i], Equals(expected[i]));
}

TEST_CASE("attention_path reports the path of the cast inputs", "[autocast]") {
  const Inputs in = random_inputs({2}, 5, 7, 8, 8);
  const Autocast autocast;
  CHECK(attention_path(in.q, in.k.to(at::kBFloat16), in.v).fused);
}
