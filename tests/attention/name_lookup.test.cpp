// SPDX-License-Identifier: MIT
// Calls without `mini::`.
#include "mini/attention.h"

#include "support/support.h"

namespace {

using namespace mini;

at::Tensor call(const at::Tensor& q, at::Tensor k, const AttentionOptions& options) {
  return scaled_dot_product_attention(q, k, at::ones_like(k), options);
}

}  // namespace

TEST_CASE("with a using directive, a call without mini:: is this library's attention",
          "[attention]") {
  const at::Tensor x = at::ones({1, 2, 3});
  const auto all_hidden = at::zeros({2, 2}, at::kBool);
  CHECK_THAT(scaled_dot_product_attention(x, x, x), mini::test::AllClose(x, 0, 1e-6));
  CHECK_THAT(call(x, x, {.mask = all_hidden}), mini::test::Equals(at::zeros({1, 2, 3})));
  CHECK_THAT(scaled_dot_product_attention(x, x, x, {.scale = 1.0, .causal = Causal::kLowerRight}),
             mini::test::AllClose(x, 0, 1e-6));
}
