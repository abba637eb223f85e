// SPDX-License-Identifier: MIT
// Which calls the fused kernel computes, and the reasons against it.
#include <torch/csrc/autograd/forward_grad.h>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("the fused kernel computes every shape and mask of the contract", "[fused]") {
  for (const std::vector<int64_t>& leading :
       {std::vector<int64_t>{}, {3}, {2, 3}, {2, 1, 3}, {0, 3}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Inputs in = random_inputs(leading, 5, 7, 300, 6, dtype);
      CHECK(attention_path(in.q, in.k, in.v).fused);
      CHECK(attention_path(in.q, in.k, in.v).reason.empty());
      CHECK(attention_path(in.q, in.k, in.v, {.mask = at::ones({5, 7}, at::kBool)}).fused);
      CHECK(attention_path(in.q, in.k, in.v, {.mask = at::ones({5, 7}, at::kDouble)}).fused);
    }
  }
}

TEST_CASE("attention_path names what the fused kernel does not support", "[fused]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  const auto reason = [](const Inputs& i, const AttentionOptions& options = {}) {
    const AttentionPath path = attention_path(i.q, i.k, i.v, options);
    CHECK_FALSE(path.fused);
    return path.reason;
  };
  CHECK_THAT(reason(in.to(at::kDouble)), ContainsSubstring("float32"));
  CHECK_THAT(reason(in, {.dropout = 0.5, .training = true}), ContainsSubstring("dropout"));
  CHECK(attention_path(in.q, in.k, in.v, {.dropout = 0.5}).fused);
  CHECK_THAT(reason(in, {.mask = at::zeros({4, 5}).requires_grad_()}), ContainsSubstring("mask"));
  CHECK_THAT(reason({in.q.to(at::kMeta), in.k.to(at::kMeta), in.v.to(at::kMeta)}),
             ContainsSubstring("CPU"));
}

TEST_CASE("attention_path gives a reason against the fused kernel", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  const AttentionPath path = attention_path(in.q, in.k, in.v, {.dropout = 0.5, .training = true});
  CHECK_FALSE(path.fused);
  CHECK_FALSE(path.reason.empty());
}

TEST_CASE("forward-mode derivatives use the composite path", "[fused]") {
  const Inputs in = random_inputs({2}, 5, 6, 4, 4), tangent = random_inputs({2}, 5, 6, 4, 4);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const at::Tensor q = at::_make_dual(in.q, tangent.q.cos(), static_cast<int64_t>(level));
  CHECK_THAT(attention_path(q, in.k, in.v).reason, ContainsSubstring("forward-mode"));
  const at::Tensor output = attention({q, in.k, in.v});
  const auto [value, slope] = at::_unpack_dual(output, static_cast<int64_t>(level));
  const double step = 1e-3;
  const at::Tensor difference = (attention({in.q + step * tangent.q.cos(), in.k, in.v}) -
                                 attention({in.q - step * tangent.q.cos(), in.k, in.v})) /
                                (2 * step);
  CHECK_THAT(slope, AllClose(difference, 1e-2, 1e-3));
  torch::autograd::ForwardADLevel::release_idx(level);
}
