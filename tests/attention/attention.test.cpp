// SPDX-License-Identifier: MIT
// The formula and its steps, on every path. Expected numbers without a named oracle are computed by
// hand in double precision.
#include "mini/attention.h"

#include <cmath>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("attention computes the worked example of three tokens", "[attention]") {
  const Inputs in = three_tokens();
  const at::Tensor weights = attention_steps(in.q, in.k, in.v).weights;
  // Row 0: scores 1, 0, 1 over sqrt(2).
  const double e = std::exp(std::sqrt(0.5)), sum = 2 * e + 1;
  CHECK_THAT(weights[0], CloseTo(torch::tensor({e / sum, 1 / sum, e / sum})));
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {})[0],
               CloseTo(torch::tensor({(e * 1 + 3 + e * 5) / sum, (e * 2 + 4 + e * 6) / sum})));
  }
}

TEST_CASE("attention computes a worked example of odd sizes", "[attention]") {
  // q_ij = (i + 1)(j + 1) / 10, k_ij = (i - 1.5)(j - 1) / 2 + 0.1 i, v_ij = i + 10 j
  const at::Tensor i = at::arange(4, at::kFloat).unsqueeze(1), j = at::arange(3, at::kFloat);
  const Inputs in{(i + 1) * (j + 1) / 10, (i - 1.5) * (j - 1) / 2 + 0.1 * i, i + 10 * j};
  const at::Tensor first_column = column({1.61519178, 1.72873542, 1.83908703, 1.9448971});
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {}), CloseTo(first_column + 10 * j));
  }
}

TEST_CASE("the default scale depends on d_k and not on another size", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 6, 5, 9);
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {}),
               AllClose(path.output(in, {.scale = 1 / std::sqrt(5.0)}), 0, 1e-7));
  }
}

TEST_CASE("attention multiplies the scores by any finite scale", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 6, 5, 3);
  for (const double scale : {1.0, 0.0, -0.7, 2.5}) {
    const at::Tensor weights = at::softmax(at::matmul(in.q, in.k.transpose(-2, -1)) * scale, -1);
    for (const Path& path : paths()) {
      INFO(path.name << ", scale " << scale);
      CHECK_THAT(path.output(in, {.scale = scale}),
                 AllClose(at::matmul(weights, in.v), 1e-5, 1e-6));
    }
  }
  SECTION("with scale 0 every key has the same weight") {
    for (const Path& path : paths()) {
      CHECK_THAT(path.output(in, {.scale = 0.0}),
                 CloseTo(in.v.mean(-2, /*keepdim=*/true).expand({2, 4, 3})));
    }
  }
}

TEST_CASE("a single token attends to itself", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 1, 1, 7, 5);
  for (const Path& path : paths()) {
    CHECK_THAT(path.output(in, {}), Equals(in.v));
    CHECK_THAT(path.output(in, {.causal = Causal::kUpperLeft}), Equals(in.v));
  }
}

TEST_CASE("permuting keys and values together does not change the output", "[attention]") {
  const Inputs in = random_inputs({2}, 5, 9, 8, 6);
  const at::Tensor order = at::randperm(9);
  for (const Path& path : paths()) {
    CHECK_THAT(path.output({in.q, in.k.index_select(1, order), in.v.index_select(1, order)}, {}),
               AllClose(path.output(in, {}), 1e-5, 1e-6));
  }
}

TEST_CASE("attention_steps returns the steps of the formula", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 5, 8, 6);
  const at::Tensor bias = at::ones({4, 5});
  const AttentionSteps steps = attention_steps(in.q, in.k, in.v, {.mask = bias, .scale = 0.5});
  CHECK_THAT(steps.scores, AllClose(at::matmul(in.q, in.k.transpose(1, 2)), 1e-6, 1e-6));
  CHECK_THAT(steps.scaled_scores, Equals(steps.scores * 0.5));  // before the mask
  CHECK_THAT(steps.weights, AllClose(at::softmax(steps.scores * 0.5 + 1, -1), 1e-6, 1e-7));
  CHECK_THAT(steps.output, AllClose(at::matmul(steps.weights, in.v), 1e-6, 1e-7));
  SECTION("half inputs have float32 steps and an output of their own dtype") {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const Inputs half = in.to(dtype);
      const AttentionSteps halves = attention_steps(half.q, half.k, half.v);
      CHECK(halves.scores.scalar_type() == at::kFloat);
      CHECK(halves.scaled_scores.scalar_type() == at::kFloat);
      CHECK(halves.weights.scalar_type() == at::kFloat);
      CHECK(halves.output.scalar_type() == dtype);
    }
  }
}

TEST_CASE("attention_steps returns the output of scaled_dot_product_attention", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 6, 6, 8, 8);
  torch::manual_seed(6);
  const at::Tensor keep = at::rand({6, 6}).gt(0.3), bias = at::randn({6, 6});
  at::Tensor one_head_hidden = at::ones({2, 3, 6, 6}, at::kBool);
  one_head_hidden.select(1, 1).fill_(false);
  const std::vector<AttentionOptions> all = {
      {},
      {.causal = Causal::kLowerRight},
      {.mask = keep},
      {.mask = bias},
      {.mask = keep, .causal = Causal::kLowerRight},
      {.mask = one_head_hidden},
  };
  for (const AttentionOptions& options : all) {
    const AttentionSteps steps = attention_steps(in.q, in.k, in.v, options);
    CHECK_THAT(mini::scaled_dot_product_attention(in.q, in.k, in.v, options),
               AllClose(steps.output, 0, 1e-6));
    CHECK_THAT(at::matmul(steps.weights, in.v), AllClose(steps.output, 0, 1e-6));
    const at::Tensor sums = steps.weights.sum(-1);
    CHECK(((sums - 1).abs().lt(1e-6)).logical_or(sums.eq(0)).all().item<bool>());
  }
}

TEST_CASE("the error of attention is at most twice LibTorch's plus 1e-6", "[attention]") {
  struct Shape {
    std::vector<int64_t> leading;
    int64_t Tq, Tk, d_k, d_v;
  };
  const std::vector<Shape> shapes = {{{2, 3}, 16, 16, 8, 8},   {{1, 2}, 33, 65, 17, 9},
                                     {{1, 1}, 64, 64, 32, 32}, {{2, 2}, 1, 129, 40, 40},
                                     {{1, 2}, 77, 77, 96, 96}, {{1, 1}, 130, 190, 129, 33}};
  for (const Shape& s : shapes) {
    const Inputs exact = random_inputs(s.leading, s.Tq, s.Tk, s.d_k, s.d_v, at::kDouble);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const Inputs rounded = exact.to(dtype);
      const Inputs reference = rounded.to(at::kDouble).requires_grad();
      const Inputs theirs = rounded.requires_grad();
      const at::Tensor upstream = at::randn_like(reference.v.new_empty({s.Tq, s.d_v}))
                                      .expand_as(libtorch_attention(reference));
      const auto outcome = [&](const at::Tensor& output, const Inputs& in) {
        std::vector<at::Tensor> all =
            gradients(output, upstream.to(output.scalar_type()), {in.q, in.k, in.v});
        all.insert(all.begin(), output);
        return all;
      };
      const auto expected =
          outcome(attention_steps(reference.q, reference.k, reference.v).output, reference);
      const auto libtorch = outcome(libtorch_attention(theirs), theirs);
      for (const Path& path : paths()) {
        const Inputs in = rounded.requires_grad();
        const auto ours = outcome(path.output(in, {}), in);
        for (size_t i = 0; i < ours.size(); ++i) {
          const auto error = [&](const at::Tensor& t) {
            return (t.to(at::kDouble) - expected[i]).abs().max().item<double>();
          };
          INFO(path.name << ' ' << dtype << ", Tq " << s.Tq << ", Tk " << s.Tk << ", d_k " << s.d_k
                         << ", result " << i);
          CHECK(error(ours[i]) <= 2 * error(libtorch[i]) + 1e-6);
        }
      }
    }
  }
}
