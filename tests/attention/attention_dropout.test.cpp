// SPDX-License-Identifier: MIT
// Dropout of attention weights, on every path.
#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("dropout zeroes weights, only in training", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 6, 8, 6);
  for (const Path& path : paths()) {
    INFO(path.name);
    const at::Tensor undropped = path.output(in, {});
    CHECK_THAT(path.output(in, {.dropout = 0.5}), Equals(undropped));

    torch::manual_seed(1);
    const at::Tensor first = path.output(in, {.dropout = 0.5, .training = true});
    const at::Tensor second = path.output(in, {.dropout = 0.5, .training = true});
    torch::manual_seed(1);
    CHECK_THAT(path.output(in, {.dropout = 0.5, .training = true}), Equals(first));
    CHECK_FALSE(at::equal(first, second));

    // Dropping every weight gives 0, not 0 / 0.
    const Inputs leaves = in.requires_grad();
    const at::Tensor nothing = path.output(leaves, {.dropout = 1.0, .training = true});
    CHECK_THAT(nothing, Equals(at::zeros_like(undropped)));
    for (const at::Tensor& gradient :
         gradients(nothing, at::ones_like(nothing), {leaves.q, leaves.k, leaves.v})) {
      CHECK_THAT(gradient, Equals(at::zeros_like(gradient)));
    }
  }
  SECTION("weights are dropped independently, and the remaining weights are scaled") {
    const at::Tensor v = at::eye(6).expand({2, 6, 6});  // the output is then the weights
    const AttentionSteps steps = attention_steps(in.q, in.k, v, {.dropout = 0.5, .training = true});
    const at::Tensor kept = steps.output != 0;
    CHECK_THAT(steps.output, AllClose(2.0 * steps.weights * kept, 1e-6, 1e-7));
    CHECK_FALSE(at::equal(kept.select(1, 0), kept.select(1, 1)));
  }
  SECTION("attention_steps returns the weights before dropout") {
    const AttentionSteps steps =
        attention_steps(in.q, in.k, in.v, {.dropout = 0.5, .training = true});
    CHECK_THAT(steps.weights, Equals(attention_steps(in.q, in.k, in.v).weights));
    CHECK_FALSE(at::allclose(at::matmul(steps.weights, in.v), steps.output));
  }
  SECTION("a given generator is used, and the global generator does not advance") {
    torch::manual_seed(9);
    const at::Tensor expected_next = at::rand({3});
    torch::manual_seed(9);
    const auto with_seed = [&](uint64_t seed) {
      return mini::scaled_dot_product_attention(
          in.q, in.k, in.v,
          {.dropout = 0.5,
           .training = true,
           .generator = at::make_generator<at::CPUGeneratorImpl>(seed)});
    };
    CHECK_THAT(with_seed(5), Equals(with_seed(5)));
    CHECK_FALSE(at::equal(with_seed(5), with_seed(6)));
    CHECK_THAT(at::rand({3}), Equals(expected_next));
  }
  SECTION("the mean over many draws equals the output without dropout") {
    const Inputs small = random_inputs({}, 2, 4, 4, 3);
    const int64_t draws = 4000;
    at::Tensor sum = at::zeros({2, 3}, at::kDouble), squares = at::zeros({2, 3}, at::kDouble);
    for (int64_t seed = 0; seed < draws; ++seed) {
      torch::manual_seed(static_cast<uint64_t>(seed));
      const at::Tensor sample = mini::scaled_dot_product_attention(
                                    small.q, small.k, small.v, {.dropout = 0.3, .training = true})
                                    .to(at::kDouble);
      sum += sample;
      squares += sample * sample;
    }
    const at::Tensor mean = sum / draws;
    const at::Tensor error = ((squares / draws - mean * mean) / draws).sqrt();
    const at::Tensor expected = mini::scaled_dot_product_attention(small.q, small.k, small.v);
    CHECK(((mean - expected).abs() <= 5 * error + 1e-6).all().item<bool>());
  }
}
