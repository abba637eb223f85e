// SPDX-License-Identifier: MIT
// Causal attention, on every path.
#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("causal attention aligns unequal lengths upper left or lower right", "[attention]") {
  struct Row {
    int64_t Tq, Tk;
    Causal causal;
    std::vector<double> values, expected;
  };
  const std::vector<Row> rows = {
      {2, 5, Causal::kUpperLeft, {1, 2, 3, 4, 5}, {1, 1.5}},
      {2, 5, Causal::kLowerRight, {1, 2, 3, 4, 5}, {2.5, 3}},
      {5, 2, Causal::kUpperLeft, {10, 20}, {10, 15, 15, 15, 15}},
      {5, 2, Causal::kLowerRight, {10, 20}, {0, 0, 0, 10, 15}},
  };
  for (const Row& row : rows) {
    const Inputs in = Inputs{at::zeros({row.Tq, 1}), at::zeros({row.Tk, 1}), column(row.values)};
    for (const Path& path : paths()) {
      INFO(path.name << ", Tq " << row.Tq << ", Tk " << row.Tk);
      const Inputs leaves = in.requires_grad();
      const at::Tensor output = path.output(leaves, {.causal = row.causal});
      CHECK_THAT(output, CloseTo(column(row.expected)));
      for (const at::Tensor& gradient :
           gradients(output, at::ones_like(output), {leaves.q, leaves.k, leaves.v})) {
        CHECK(gradient.isfinite().all().item<bool>());
      }
    }
  }
}

TEST_CASE("causal weights right of the diagonal are exactly 0", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 6, 6, 8, 8);
  const at::Tensor weights =
      attention_steps(in.q, in.k, in.v, {.causal = Causal::kLowerRight}).weights;
  CHECK_THAT(weights.triu(1), Equals(at::zeros_like(weights)));
  CHECK_THAT(weights.sum(-1), CloseTo(at::ones({2, 3, 6})));
}

TEST_CASE("causal outputs do not depend on later tokens", "[attention]") {
  const Inputs in = random_inputs({2}, 6, 6, 8, 8);
  Inputs changed = in;
  for (at::Tensor* tensor : {&changed.q, &changed.k, &changed.v}) {
    *tensor = tensor->clone();
    tensor->narrow(-2, 3, 3).add_(10);
  }
  for (const Path& path : paths()) {
    INFO(path.name);
    const AttentionOptions options{.causal = Causal::kUpperLeft};
    CHECK_THAT(path.output(changed, options).narrow(-2, 0, 3),
               AllClose(path.output(in, options).narrow(-2, 0, 3), 0, 1e-6));
  }
  SECTION("bit for bit in attention_steps") {
    const AttentionOptions options{.causal = Causal::kUpperLeft};
    CHECK_THAT(attention_steps(changed.q, changed.k, changed.v, options).output.narrow(-2, 0, 3),
               Equals(attention_steps(in.q, in.k, in.v, options).output.narrow(-2, 0, 3)));
  }
}

TEST_CASE("causality and a mask each hide keys", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 6, 6, 8, 8);
  torch::manual_seed(4);
  const at::Tensor keep = at::rand({2, 1, 6, 6}).gt(0.3);
  const at::Tensor both = keep.logical_and(at::ones({6, 6}).tril().to(at::kBool));
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {.mask = keep, .causal = Causal::kLowerRight}),
               AllClose(path.output(in, {.mask = both}), 0, 1e-6));
  }
}
