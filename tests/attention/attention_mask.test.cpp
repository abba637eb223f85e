// SPDX-License-Identifier: MIT
// Masks, and rows in which every key is hidden, on every path.
#include <limits>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("a mask broadcasts to the scores", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  torch::manual_seed(3);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{},
                                            {5},
                                            {1},
                                            {4, 5},
                                            {1, 5},
                                            {4, 1},
                                            {1, 1},
                                            {2, 3, 4, 5},
                                            {2, 1, 1, 5},
                                            {1, 3, 4, 1},
                                            {1, 1, 4, 5}}) {
    const at::Tensor added = at::randn(shape);
    const at::Tensor keep = at::randn(shape).gt(-0.5).logical_or(added.eq(added.max()));
    const at::Tensor added_in_full = added.expand({2, 3, 4, 5});
    const at::Tensor keep_in_full = keep.expand({2, 3, 4, 5});
    for (const Path& path : paths()) {
      INFO(path.name << ", mask " << c10::str(added.sizes()));
      CHECK_THAT(path.output(in, {.mask = added}),
                 AllClose(libtorch_attention(in, added_in_full), 1e-5, 1e-6));
      CHECK_THAT(path.output(in, {.mask = keep}),
                 AllClose(libtorch_attention(in, keep_in_full).nan_to_num(0), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("a floating mask may have any floating dtype", "[attention]") {
  torch::manual_seed(5);
  const at::Tensor bias = at::randn({4, 5}).to(at::kBFloat16);  // exact in every dtype below
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const Inputs in = random_inputs({2}, 4, 5, 8, 6, dtype);
    const at::ScalarType accumulation = dtype == at::kDouble ? at::kDouble : at::kFloat;
    for (const Path& path : paths()) {
      const at::Tensor expected = path.output(in, {.mask = bias.to(accumulation)});
      for (const at::ScalarType mask_dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        INFO(path.name << ", q " << dtype << ", mask " << mask_dtype);
        const at::Tensor output = path.output(in, {.mask = bias.to(mask_dtype)});
        CHECK(output.scalar_type() == dtype);
        CHECK_THAT(output, Equals(expected));
      }
    }
  }
}

TEST_CASE("the lowest finite mask value does not hide a key", "[attention]") {
  const Inputs in = three_tokens();
  const at::Tensor lowest = at::full({3, 3}, std::numeric_limits<float>::lowest());
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {.mask = lowest}),
               CloseTo(in.v.mean(0, /*keepdim=*/true).expand({3, 2})));
  }
}

TEST_CASE("a row that sees no key has weights and output 0", "[attention]") {
  const Inputs in = three_tokens();
  const at::Tensor keep = bools({3, 3}, {1, 0, 0, 0, 0, 0, 1, 1, 1});
  const at::Tensor bias = at::zeros({3, 3}).masked_fill(keep.logical_not(), -kInf);
  const at::Tensor weights =
      torch::tensor({{1.0, 0.0, 0.0}, {0.0, 0.0, 0.0}, {0.248255078, 0.248255078, 0.503489843}});
  const at::Tensor output = torch::tensor({{1.0, 2.0}, {0.0, 0.0}, {3.51046953, 4.51046953}});
  for (const at::Tensor& mask : {keep, bias}) {
    INFO("mask of " << mask.scalar_type());
    const AttentionSteps steps = attention_steps(in.q, in.k, in.v, {.mask = mask});
    CHECK_THAT(steps.weights, CloseTo(weights));
    CHECK_THAT(steps.weights.narrow(0, 0, 2), Equals(weights.narrow(0, 0, 2)));
    for (const Path& path : paths()) {
      INFO(path.name);
      const at::Tensor actual = path.output(in, {.mask = mask});
      CHECK_THAT(actual, CloseTo(output));
      CHECK_THAT(actual.narrow(0, 0, 2), Equals(output.narrow(0, 0, 2)));
    }
  }
  SECTION("if only mask and causality together hide every key") {
    const at::Tensor without_first = bools({1, 3}, {0, 1, 1});
    for (const Causal causal : {Causal::kUpperLeft, Causal::kLowerRight}) {
      const AttentionOptions options{.mask = without_first, .causal = causal};
      CHECK_THAT(attention_steps(in.q, in.k, in.v, options).weights[0], Equals(at::zeros({3})));
      for (const Path& path : paths()) {
        INFO(path.name);
        const at::Tensor actual = path.output(in, options);
        CHECK_THAT(actual[0], Equals(at::zeros({2})));
        CHECK_THAT(actual[1], CloseTo(torch::tensor({3.0, 4.0})));
        CHECK(actual.isfinite().all().item<bool>());
      }
    }
  }
}
