// SPDX-License-Identifier: MIT
#include "support/guarded_memory.h"

#include "modules/functional.h"
#include "support/support.h"
#include "support/targets.h"

using namespace mini::test;

TEST_CASE("GELU and layer norm read nothing beyond their inputs on every instruction set",
          "[functional]") {
  torch::manual_seed(1);
  for (int64_t width = 1; width <= 40; ++width) {
    INFO("width " << width);
    const auto draw = [&] { return guarded(at::randn({3, width})); };
    const at::Tensor x = draw().requires_grad_(), upstream = draw();
    const at::Tensor weight = guarded(at::randn({width})).requires_grad_(),
                     bias = guarded(at::randn({width})).requires_grad_();
    for_each_target([&] {
      const at::Tensor activated = mini::detail::gelu(x, "none");
      CHECK_THAT(activated, AllClose(at::gelu(x), 1e-5, 1e-6));
      CHECK(torch::autograd::grad({activated}, {x}, {upstream})[0].isfinite().all().item<bool>());
      const at::Tensor normed = mini::detail::layer_norm(x, weight, bias);
      const auto gradients = torch::autograd::grad({normed}, {x, weight, bias}, {upstream});
      CHECK_THAT(gradients[2], AllClose(upstream.sum(0), 1e-5, 1e-6));
    });
  }
}
