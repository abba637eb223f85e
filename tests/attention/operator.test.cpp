// SPDX-License-Identifier: MIT
// The operators of LibTorch's dispatcher.
#include <ATen/core/dispatch/Dispatcher.h>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("the operator computes the same as the function", "[fused]") {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("mini::scaled_dot_product_attention", "")
                      .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        const std::optional<at::Tensor>&, std::optional<double>,
                                        c10::string_view, bool)>();
  const Inputs in = random_inputs({2, 4}, 9, 12, 16, 8);
  const at::Tensor keep = at::rand({9, 12}) < 0.7;
  const Inputs shared{in.q, in.k.slice(1, 0, 2), in.v.slice(1, 0, 2)};
  CHECK_THAT(op.call(in.q, in.k, in.v, {}, {}, "none", false), Equals(attention(in)));
  CHECK_THAT(
      op.call(shared.q, shared.k, shared.v, keep, 0.5, "lower_right", true),
      Equals(attention(
          shared,
          {.mask = keep, .scale = 0.5, .causal = Causal::kLowerRight, .grouped_queries = true})));
  CHECK_THAT(op.call(in.q, in.k, in.v, {}, {}, "upper_left", false),
             Equals(attention(in, {.causal = Causal::kUpperLeft})));
  const Inputs f64 = in.to(at::kDouble);
  CHECK_THAT(op.call(f64.q, f64.k, f64.v, {}, {}, "none", false), Equals(attention(f64)));
  CHECK_THROWS_WITH(op.call(in.q, in.k, in.v, {}, {}, "sideways", false),
                    ContainsSubstring("\"lower_right\", got \"sideways\""));
  CHECK_THROWS_WITH(op.call(in.q, in.k.slice(2, 1), in.v, {}, {}, "none", false),
                    ContainsSubstring("Tk"));
}

TEST_CASE("the backward operator returns gradients that share no memory", "[fused]") {
  const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mini::_attention_backward", "")
          .typed<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
              const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
              const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
              std::optional<double>, int64_t, bool)>();
  const at::Tensor packed = at::randn({2, 5, 3, 4, 8}).permute({2, 0, 3, 1, 4});
  const at::Tensor output = attention({packed[0], packed[1], packed[2]});
  const auto [dq, dk, dv] = op.call(output, packed[0], packed[1], packed[2], output,
                                    at::zeros({2, 4, 2, 5}), {}, {}, 0, false);
  CHECK_FALSE(dq.is_alias_of(dk));
  CHECK_FALSE(dk.is_alias_of(dv));
}
