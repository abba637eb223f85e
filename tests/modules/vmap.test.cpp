// SPDX-License-Identifier: MIT
// Attention and modules under vmap, compared with a loop over the examples.
#include "support/vmap.h"

#include <string>
#include <utility>
#include <vector>

#include "mini/attention.h"
#include "mini/block.h"
#include "modules/functional.h"
#include "support/support.h"

using mini::test::AllClose;
using mini::test::Vmap;

namespace {

constexpr int64_t kExamples = 3;

}  // namespace

TEST_CASE("attention under vmap equals attention on each example, whichever input is batched",
          "[functional]") {
  torch::manual_seed(11);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> all = {
      at::randn({kExamples, 2, 5, 8}), at::randn({kExamples, 2, 6, 8}),
      at::randn({kExamples, 2, 6, 4}), at::randn({kExamples, 5, 6})};
  const std::vector<std::string> names = {"q", "k", "v", "mask"};
  const auto attention = [](const std::vector<at::Tensor>& in) {
    return mini::scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]});
  };
  for (size_t batched = 0; batched < all.size(); ++batched) {
    INFO("batched: " << names[batched]);
    const auto inputs = [&](const auto& of_batched) {
      std::vector<at::Tensor> in;
      for (size_t i = 0; i < all.size(); ++i) {
        in.push_back(i == batched ? of_batched(all[i]) : all[i][0]);
      }
      return in;
    };
    std::vector<at::Tensor> expected;
    for (int64_t example = 0; example < kExamples; ++example) {
      expected.push_back(attention(inputs([&](const at::Tensor& t) { return t[example]; })));
    }
    const Vmap vmap(kExamples);
    const at::Tensor output =
        attention(inputs([&](const at::Tensor& t) { return vmap.batched(t); }));
    const at::Tensor actual = vmap.examples(output);
    CHECK_THAT(actual, AllClose(at::stack(expected), 1e-5, 1e-6));
  }
}

TEST_CASE("a block under vmap equals the block on each example", "[block]") {
  torch::manual_seed(12);
  const at::NoGradGuard no_grad;
  mini::Block block(mini::BlockOptions(12, 3).causal(true).bias(true).seed(1));
  const at::Tensor x = at::randn({kExamples, 2, 5, 12});
  const at::Tensor expected = block(x);
  const Vmap vmap(kExamples);
  CHECK_THAT(vmap.examples(block(vmap.batched(x))), AllClose(expected, 1e-5, 1e-6));
}

TEST_CASE("split_heads joins gradients under vmap as on each example", "[functional]") {
  torch::manual_seed(13);
  const at::Tensor packed = at::randn({2, 5, 24}).requires_grad_();
  const at::Tensor upstream = at::randn({kExamples, 3, 2, 2, 5, 4});  // of q, k and v
  const std::vector<at::Tensor> parts = mini::detail::split_heads(packed, 2);
  const at::Tensor heads = at::stack(parts);
  const auto gradient = [&](const at::Tensor& d_heads) {
    return torch::autograd::grad({heads}, {packed}, {d_heads}, /*retain_graph=*/true)[0];
  };
  std::vector<at::Tensor> expected;
  for (int64_t example = 0; example < kExamples; ++example) {
    expected.push_back(gradient(upstream[example]));
  }
  const Vmap vmap(kExamples);
  CHECK_THAT(vmap.examples(gradient(vmap.batched(upstream))),
             AllClose(at::stack(expected), 0.0, 0.0));
}

TEST_CASE("attention's gradients under vmap equal those of each example", "[functional]") {
  torch::manual_seed(14);
  const std::vector<at::Tensor> leaves = {at::randn({2, 5, 8}).requires_grad_(),
                                          at::randn({2, 6, 8}).requires_grad_(),
                                          at::randn({2, 6, 4}).requires_grad_()};
  const at::Tensor upstream = at::randn({kExamples, 2, 5, 4});
  const at::Tensor output =
      mini::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2]);  // (2, 5, 4)
  const auto gradients = [&](const at::Tensor& d_output) {
    return torch::autograd::grad({output}, leaves, {d_output}, /*retain_graph=*/true);
  };
  std::vector<std::vector<at::Tensor>> expected;
  for (int64_t example = 0; example < kExamples; ++example) {
    expected.push_back(gradients(upstream[example]));
  }
  const Vmap vmap(kExamples);
  const std::vector<at::Tensor> actual = gradients(vmap.batched(upstream));
  for (size_t i = 0; i < leaves.size(); ++i) {
    INFO("input " << i);
    const at::Tensor examples = vmap.examples(actual[i]);
    for (int64_t example = 0; example < kExamples; ++example) {
      CHECK_THAT(examples[example],
                 AllClose(expected[static_cast<size_t>(example)][i], 1e-5, 1e-6));
    }
  }
}
