// SPDX-License-Identifier: MIT
// Large scores, NaN and infinity, on every path.
#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("large scores give exact weights and finite gradients", "[attention]") {
  struct Row {
    std::vector<double> q, k, v;
    Causal causal;
    std::vector<double> first_weights;
    double first_output;
  };
  const std::vector<Row> rows = {
      {{100}, {100, 99}, {1, 2}, Causal::kNone, {1, 0}, 1},
      {{100}, {100, 100}, {1, 2}, Causal::kNone, {0.5, 0.5}, 1.5},
      {{100}, {-200, -201}, {1, 2}, Causal::kNone, {1, 0}, 1},
      {{100, 100}, {-200, -50}, {1, 2}, Causal::kUpperLeft, {1, 0}, 1},
  };
  for (const Row& row : rows) {
    const Inputs in{column(row.q), column(row.k), column(row.v)};
    const AttentionOptions options{.scale = 1.0, .causal = row.causal};
    CHECK_THAT(attention_steps(in.q, in.k, in.v, options).weights[0],
               AllClose(torch::tensor(row.first_weights), 0, 1e-40));
    for (const Path& path : paths()) {
      INFO(path.name);
      const Inputs leaves = in.requires_grad();
      const at::Tensor output = path.output(leaves, options);
      CHECK(output[0].item<double>() == row.first_output);
      for (const at::Tensor& gradient :
           gradients(output, at::ones_like(output), {leaves.q, leaves.k, leaves.v})) {
        CHECK(gradient.isfinite().all().item<bool>());
      }
    }
  }
}

TEST_CASE("NaN and infinity propagate only to the rows that see them", "[attention]") {
  for (const double bad : {kNan, kInf}) {
    Inputs in = random_inputs({2}, 4, 5, 8, 6);
    const at::Tensor clean_k = in.k.clone();
    const at::Tensor keep = bools({4, 5}, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1,  //
                                           1, 1, 0, 1, 1, 0, 0, 0, 0, 0});
    const at::Tensor bias = at::zeros({4, 5}).masked_fill(keep.logical_not(), -kInf);
    in.k[0][2].fill_(bad);
    const Inputs clean{in.q, clean_k, in.v};
    for (const at::Tensor& mask : {keep, bias}) {
      for (const Path& path : paths()) {
        INFO(path.name << ", " << bad << ", mask of " << mask.scalar_type());
        const at::Tensor output = path.output(in, {.mask = mask});
        const at::Tensor expected = path.output(clean, {.mask = mask});
        CHECK(output[0][1].isnan().any().item<bool>());  // sees the bad key
        for (const int64_t row : {0, 2, 3}) {            // do not see it
          CHECK_THAT(output[0][row], AllClose(expected[0][row], 0, 1e-6));
        }
        CHECK_THAT(output[1], AllClose(expected[1], 0, 1e-6));
      }
    }
  }
  SECTION("a NaN query makes its row NaN, a NaN value makes its column NaN") {
    for (const Path& path : paths()) {
      INFO(path.name);
      Inputs in = random_inputs({1}, 3, 3, 4, 4);
      in.q[0][1][0] = kNan;
      CHECK_THAT(path.output(in, {}).isnan()[0].all(-1),
                 Equals(torch::tensor({false, true, false})));
      in = random_inputs({1}, 3, 3, 4, 4);
      in.v[0][1][2] = kNan;
      CHECK(path.output(in, {}).isnan().select(-1, 2).all().item<bool>());
      CHECK(path.output(in, {}).isnan().sum().item<int64_t>() == 3);
    }
  }
  SECTION("a NaN key does not affect causal rows that do not see it") {
    Inputs in = random_inputs({1}, 4, 4, 8, 8);
    const AttentionOptions causal{.causal = Causal::kUpperLeft};
    for (const Path& path : paths()) {
      INFO(path.name);
      const at::Tensor expected = path.output(in, causal);
      Inputs bad = in;
      bad.k = in.k.clone();
      bad.k[0][2].fill_(kNan);
      const at::Tensor output = path.output(bad, causal);
      CHECK_THAT(output[0].narrow(0, 0, 2), AllClose(expected[0].narrow(0, 0, 2), 0, 1e-6));
      CHECK(output[0].narrow(0, 2, 2).isnan().all().item<bool>());
    }
  }
}
