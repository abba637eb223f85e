// SPDX-License-Identifier: MIT
// Layer norm of rows whose numbers hardly differ, on every instruction set.
#include <algorithm>
#include <vector>

#include "modules/functional.h"
#include "support/support.h"
#include "support/targets.h"

using mini::test::for_each_target;

TEST_CASE("the layer norm of a constant row is the bias", "[layer_norm]") {
  for (const int64_t width : {1, 2, 15, 16, 61, 128, 1000}) {
    const at::Tensor weight = at::randn(width), bias = at::randn(width);
    for (const double value : {0.1, 3.0, 1000.0, -1e4, 1e6, -1e20}) {
      const at::Tensor x = at::full({2, width}, value);
      for_each_target([&] {
        INFO("width " << width << ", value " << value);
        CHECK(mini::detail::layer_norm(x, weight, bias).equal(bias.expand({2, width})));
      });
    }
  }
}

TEST_CASE("the layer norm of a narrow row is within twice LibTorch's error", "[layer_norm]") {
  const auto results = [](const auto& norm, const at::Tensor& x, const at::Tensor& upstream) {
    const at::Tensor leaf = x.detach().clone().requires_grad_();
    const at::Tensor weight = at::ones(x.size(-1), x.options()).requires_grad_();
    const at::Tensor bias = at::zeros(x.size(-1), x.options()).requires_grad_();
    const at::Tensor y = norm(leaf, weight, bias);
    auto all = torch::autograd::grad({y}, {leaf, weight, bias}, {upstream.to(x.scalar_type())});
    all.push_back(y.detach());
    return all;
  };
  const auto ours = [](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return mini::detail::layer_norm(x, weight, bias);
  };
  const auto libtorch = [](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, 1e-5);
  };
  for (const int64_t width : {3, 15, 61, 128, 999}) {
    for (const double mean : {0.0, 0.1, 10.0, 1000.0}) {
      for (const double spread : {1e-4, 1e-2, 1.0}) {
        torch::manual_seed(width);
        const at::Tensor x = (at::randn({64, width}) * spread + mean);
        const at::Tensor upstream = at::randn({64, width});
        const auto exact = results(libtorch, x.to(at::kDouble), upstream);
        const auto peer = results(libtorch, x, upstream);
        const auto error = [](const at::Tensor& a, const at::Tensor& b) {
          return (a - b).square().mean().sqrt().item<double>();
        };
        for_each_target([&] {
          const auto found = results(ours, x, upstream);
          for (size_t i = 0; i < found.size(); ++i) {
            INFO("width " << width << ", mean " << mean << ", spread " << spread << ", result "
                          << i);
            const double size = std::max(1.0, exact[i].square().mean().sqrt().item<double>());
            CHECK(error(found[i], exact[i]) <= 2 * error(peer[i], exact[i]) + 1e-6 * size);
          }
        });
      }
    }
  }
}
