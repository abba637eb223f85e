// SPDX-License-Identifier: MIT
#include "support/guarded_memory.h"

#include "support/attention_support.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("attention reads nothing beyond its inputs on every instruction set", "[kernel]") {
  struct Size {
    int64_t Tq, Tk, d_k, d_v;
  };
  for (const Size& size : {Size{1, 1, 1, 1},
                           {1, 33, 17, 5},
                           {3, 6, 40, 40},
                           {5, 3, 3, 7},
                           {9, 7, 15, 31},
                           {17, 33, 48, 65},
                           {65, 129, 33, 100}}) {
    INFO("Tq " << size.Tq << " Tk " << size.Tk << " d_k " << size.d_k << " d_v " << size.d_v);
    const Inputs in = random_inputs({2}, size.Tq, size.Tk, size.d_k, size.d_v);
    const at::Tensor q = guarded(in.q).requires_grad_(), k = guarded(in.k).requires_grad_(),
                     v = guarded(in.v).requires_grad_();
    const at::Tensor upstream = guarded(at::randn({2, size.Tq, size.d_v}));
    for (const at::Tensor& mask : {guarded(at::zeros({size.Tq, size.Tk})),
                                   guarded(at::ones({2, size.Tq, size.Tk}, at::kBool))}) {
      for_each_target([&] {
        for (const AttentionOptions& options :
             {AttentionOptions{.causal = Causal::kLowerRight}, AttentionOptions{.mask = mask}}) {
          const at::Tensor output = mini::scaled_dot_product_attention(q, k, v, options);
          CHECK(output.isfinite().all().item<bool>());
          for (const at::Tensor& gradient : gradients(output, upstream, {q, k, v})) {
            CHECK(gradient.isfinite().all().item<bool>());
          }
        }
      });
    }
  }
}

TEST_CASE("slices of keys add to the gradient of q on every instruction set", "[kernel]") {
  // Heads this wide are processed in slices of 64 keys.
  const Inputs in = random_inputs({1, 2}, 20, 200, 300, 300);
  const at::Tensor upstream = at::randn({1, 2, 20, 300});
  for (const Causal causal : {Causal::kNone, Causal::kLowerRight}) {
    const AttentionOptions options{.causal = causal};
    const Inputs exact = in.to(at::kDouble).requires_grad();
    const auto expected = gradients(attention_steps(exact.q, exact.k, exact.v, options).output,
                                    upstream.to(at::kDouble), {exact.q, exact.k, exact.v});
    for_each_target([&] {
      const Inputs leaves = in.requires_grad();
      const auto actual =
          gradients(attention(leaves, options), upstream, {leaves.q, leaves.k, leaves.v});
      for (size_t i = 0; i < 3; ++i) CHECK_THAT(actual[i], AllClose(expected[i], 2e-5, 3e-5));
    });
  }
}
