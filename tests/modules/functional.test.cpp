// SPDX-License-Identifier: MIT
#include "modules/functional.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "mini/attention.h"
#include "support/support.h"
#include "support/targets.h"
#include "support/threads.h"

using mini::test::AllClose;
using mini::test::Equals;
using mini::test::for_each_target;
using mini::test::Threads;

namespace {

using Variables = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Variables&)>;

at::Tensor gelu(const Variables& in) { return mini::detail::gelu(in[0], "none"); }
at::Tensor libtorch_gelu(const Variables& in) { return at::gelu(in[0]); }

at::Tensor norm(const Variables& in) {
  return mini::detail::layer_norm(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor());
}
at::Tensor libtorch_norm(const Variables& in) {
  return at::layer_norm(in[0], in[1].sizes(), in[1], in.size() > 2 ? in[2] : at::Tensor(), 1e-5);
}

Variables to(at::ScalarType dtype, const Variables& in) {
  Variables result;
  for (const at::Tensor& t : in) result.push_back(t.to(dtype).detach().requires_grad_());
  return result;
}

// The result, its gradients for a fixed upstream gradient, and second-order gradients.
Variables all_orders(const Function& f, const Variables& in) {
  const at::Tensor y = f(in);
  torch::manual_seed(3);
  const at::Tensor upstream = at::randn(y.sizes(), at::kDouble).to(y.scalar_type());
  const Variables first = torch::autograd::grad({y}, in, {upstream}, true, true);
  at::Tensor sum = at::zeros({}, y.options());
  for (const at::Tensor& gradient : first) sum = sum + gradient.square().sum();
  Variables all{y.detach()};
  for (const at::Tensor& gradient : first) all.push_back(gradient.detach());
  for (const at::Tensor& gradient : torch::autograd::grad({sum}, in, {}, {}, {}, true)) {
    if (gradient.defined()) all.push_back(gradient);  // the bias has no second-order gradient
  }
  // Once more without create_graph, as in training.
  for (const at::Tensor& gradient : torch::autograd::grad({f(in)}, in, {upstream})) {
    all.push_back(gradient);
  }
  return all;
}

void check_like(const Function& ours, const Function& libtorch, const Variables& in) {
  const Variables expected = all_orders(libtorch, to(at::kDouble, in));
  for_each_target([&] {
    const Variables actual = all_orders(ours, to(at::kFloat, in));
    REQUIRE(actual.size() == expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      INFO("result " << i << " of " << in[0].sizes());
      CHECK(actual[i].scalar_type() == at::kFloat);
      CHECK_THAT(actual[i], AllClose(expected[i], 2e-5, 1e-4));
    }
  });
}

Variables norm_inputs(at::IntArrayRef sizes, bool bias) {
  torch::manual_seed(5);
  Variables in{2.0 * at::randn(sizes) + 0.5, at::randn(sizes.back())};
  if (bias) in.push_back(at::randn(sizes.back()));
  return in;
}

}  // namespace

TEST_CASE("split_heads equals LibTorch's views, with first- and second-order gradients",
          "[functional]") {
  const auto ours = [](const Variables& in) {
    return at::cat(mini::detail::split_heads(in[0], 2)).pow(3);
  };
  const auto libtorch = [](const Variables& in) {
    Variables parts = in[0].chunk(3, -1);
    for (at::Tensor& part : parts) part = part.unflatten(-1, {2, -1}).transpose(-3, -2);
    return at::cat(parts).pow(3);
  };
  torch::manual_seed(4);
  check_like(ours, libtorch, {at::randn({3, 5, 24})});
  check_like(ours, libtorch, {at::randn({1, 6})});
  check_like(ours, libtorch, {at::randn({2, 0, 24})});

  const at::Tensor packed = at::randn({3, 5, 24}).requires_grad_();
  const Variables parts = mini::detail::split_heads(packed, 2);
  CHECK(parts[1].data_ptr<float>() == packed.data_ptr<float>() + 8);  // a view
  parts[2].sum().backward();  // the gradient of unused parts is 0
  CHECK(packed.grad().narrow(-1, 0, 16).eq(0).all().item<bool>());
  CHECK(packed.grad().narrow(-1, 16, 8).eq(1).all().item<bool>());
}

TEST_CASE("attention on split_heads has the formula's first- and second-order gradients",
          "[functional]") {
  // order: the parts of split_heads that serve as queries, keys and values.
  const auto check = [](at::IntArrayRef sizes, std::array<size_t, 3> order) {
    const auto heads = [&](const Variables& in) {
      const Variables parts = mini::detail::split_heads(in[0], 2);
      return Variables{parts[order[0]], parts[order[1]], parts[order[2]]};
    };
    const auto fused = [&](const Variables& in) {
      const Variables of = heads(in);
      return mini::scaled_dot_product_attention(of[0], of[1], of[2]);
    };
    const auto formula = [&](const Variables& in) {
      const Variables of = heads(in);
      return mini::attention_steps(of[0], of[1], of[2]).output;
    };
    check_like(fused, formula, {at::randn(sizes)});
  };
  torch::manual_seed(6);
  const std::vector<std::vector<int64_t>> shapes = {{3, 5, 24},   {2, 1, 24},   {7, 30},
                                                    {2, 3, 9, 6}, {2, 70, 240}, {2, 0, 24}};
  for (const auto& sizes : shapes) check(sizes, {0, 1, 2});
  check({3, 5, 24}, {2, 0, 1});
  check({3, 5, 24}, {0, 0, 0});
}

TEST_CASE(
    "fused attention writes the gradients of split_heads into one tensor, which hooks may change",
    "[functional]") {
  torch::manual_seed(7);
  const at::Tensor packed = at::randn({3, 5, 24}).requires_grad_();
  const auto gradient = [&](const std::function<void(const Variables&)>& inspect) {
    const Variables parts = mini::detail::split_heads(packed, 2);
    inspect(parts);
    const at::Tensor output = mini::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return torch::autograd::grad({output.pow(2).sum()}, {packed})[0];
  };
  std::vector<const float*> addresses;
  const at::Tensor joined = gradient([&](const Variables& parts) {
    for (const at::Tensor& part : parts) {
      part.register_hook(
          [&](const at::Tensor& d) { addresses.push_back(d.const_data_ptr<float>()); });
    }
  });
  std::sort(addresses.begin(), addresses.end());
  const auto* first = joined.const_data_ptr<float>();
  CHECK(addresses == std::vector{first, first + 8, first + 16});

  const at::Tensor changed = gradient([&](const Variables& parts) {
    parts[1].register_hook([](const at::Tensor& d) { return d * 2.0; });
  });
  CHECK_THAT(changed.narrow(-1, 8, 8), Equals(joined.narrow(-1, 8, 8) * 2.0));
  CHECK_THAT(changed.narrow(-1, 0, 8), Equals(joined.narrow(-1, 0, 8)));
  CHECK_THAT(changed.narrow(-1, 16, 8), Equals(joined.narrow(-1, 16, 8)));
}

TEST_CASE("split_heads concatenates upstream gradients of any memory layout", "[functional]") {
  torch::manual_seed(8);
  const at::Tensor packed = at::randn({3, 5, 24}).requires_grad_();
  const auto check = [&](const Variables& upstream) {
    Variables rows;
    for (const at::Tensor& part : upstream) rows.push_back(part.transpose(-3, -2).flatten(-2));
    const at::Tensor joined =
        torch::autograd::grad(mini::detail::split_heads(packed, 2), {packed}, upstream)[0];
    CHECK_THAT(joined, Equals(at::cat(rows, -1)));
  };
  const auto thirds = [](const at::Tensor& rows) { return mini::detail::split_heads(rows, 2); };
  const Variables one = thirds(at::randn({3, 5, 24})), other = thirds(at::randn({3, 5, 24}));
  check(one);
  check({one[0], other[1], one[2]});
  check({one[0], one[2], one[1]});
  check({one[0], one[0], one[0]});
  check({one[0], at::_neg_view(one[1]), one[2]});
  check(thirds(at::randn({3, 5, 32}).narrow(-1, 0, 24)));
  check(thirds(at::randn({5, 3, 24}).transpose(0, 1)));
  check(thirds(at::randn({1, 1, 24}).expand({3, 5, 24})));
}

TEST_CASE("gelu equals LibTorch's, with first- and second-order gradients", "[functional]") {
  torch::manual_seed(1);
  for (const int64_t n : {1, 7, 16, 37, 1000}) {
    check_like(gelu, libtorch_gelu, {3.0 * at::randn({3, n})});
  }
}

TEST_CASE("gelu is accurate to float32 precision for every x", "[functional]") {
  const at::Tensor x = at::linspace(-12, 12, 200'001, at::kDouble).to(at::kFloat);
  const at::Tensor exact = at::gelu(x.to(at::kDouble));
  for_each_target([&] {
    const at::Tensor error = (mini::detail::gelu(x, "none") - exact).abs();
    CHECK((error / x.abs().clamp_min(1e-3)).max().item<double>() < 2.5e-7);
    const at::Tensor far = mini::detail::gelu(
        torch::tensor({-1e30F, -6.0F, -0.0F, 0.0F, 6.0F, 1e30F, HUGE_VALF}), "none");
    CHECK(far.equal(torch::tensor({-0.0F, -0.0F, -0.0F, 0.0F, 6.0F, 1e30F, HUGE_VALF})));
    CHECK(mini::detail::gelu(torch::tensor({1.0F, NAN}), "none")[1].isnan().item<bool>());
  });
}

TEST_CASE("layer_norm equals LibTorch's, with first- and second-order gradients", "[functional]") {
  for (const bool bias : {false, true}) {
    for (const int64_t width : {5, 7, 16, 33, 128}) {
      for (const int64_t rows : {1, 5, 200}) {
        check_like(norm, libtorch_norm, norm_inputs({2, rows, width}, bias));
      }
    }
  }
}

TEST_CASE("layer_norm sums the gradients of 5000 rows accurately", "[functional]") {
  const Variables in = norm_inputs({5000, 24}, true);
  const auto gradients = [&](const Function& f, at::ScalarType dtype) {
    const Variables leaves = to(dtype, in);
    return torch::autograd::grad({f(leaves)}, leaves, {in[0].to(dtype)});
  };
  const Variables actual = gradients(norm, at::kFloat);
  const Variables expected = gradients(libtorch_norm, at::kDouble);
  for (size_t i = 0; i < actual.size(); ++i) {
    CHECK_THAT(actual[i], AllClose(expected[i], 2e-5, 1e-3));
  }
}

TEST_CASE("layer_norm of rows of width 1 is the bias", "[functional]") {
  const Variables in = to(at::kFloat, norm_inputs({6, 1}, true));
  CHECK_THAT(norm(in).detach(), AllClose(in[2].detach().expand({6, 1}), 1e-6, 1e-6));
}

TEST_CASE("layer_norm of zero rows is empty, with gradients of 0", "[functional]") {
  const Variables in = to(at::kFloat, norm_inputs({0, 8}, true));
  const at::Tensor y = norm(in);
  CHECK(y.sizes() == at::IntArrayRef{0, 8});
  for (const at::Tensor& gradient : torch::autograd::grad({y.sum()}, in)) {
    CHECK(gradient.eq(0).all().item<bool>());
  }
}

TEST_CASE("gelu and layer_norm accept strided inputs and upstream gradients", "[functional]") {
  torch::manual_seed(2);
  const at::Tensor wide = at::randn({40, 6});
  const Variables in = norm_inputs({6, 40}, true);
  CHECK(mini::detail::gelu(wide.t(), "none")
            .equal(mini::detail::gelu(wide.t().contiguous(), "none")));
  const at::Tensor y = mini::detail::layer_norm(wide.t(), in[1], in[2]);
  CHECK(y.equal(mini::detail::layer_norm(wide.t().contiguous(), in[1], in[2])));
  for (const Function& f : {Function(gelu), Function(norm)}) {
    const Variables leaves = to(at::kFloat, in);
    const Variables a = torch::autograd::grad({f(leaves)}, {leaves[0]}, {wide.t()});
    const Variables b = torch::autograd::grad({f(leaves)}, {leaves[0]}, {wide.t().contiguous()});
    CHECK(a[0].equal(b[0]));
  }
}

TEST_CASE("gelu and layer_norm respect the sign of a negated view", "[functional]") {
  const at::Tensor negated = at::_neg_view(at::randn({4, 16}));
  REQUIRE(negated.is_neg());
  CHECK_THAT(mini::detail::gelu(negated, "none"), AllClose(at::gelu(negated), 1e-5, 1e-6));
  CHECK_THAT(mini::detail::layer_norm(negated, at::ones(16), {}),
             AllClose(at::layer_norm(negated, {16}), 1e-5, 1e-5));
}

TEST_CASE("other dtypes and approximations use LibTorch's functions", "[functional]") {
  torch::manual_seed(4);
  const at::Tensor x = at::randn({5, 24});
  CHECK(mini::detail::gelu(x, "tanh").equal(at::gelu(x, "tanh")));
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    const at::Tensor typed = x.to(dtype), weight = at::ones(24, typed.options());
    CHECK(mini::detail::gelu(typed, "none").equal(at::gelu(typed)));
    CHECK(mini::detail::layer_norm(typed, weight, {})
              .equal(at::layer_norm(typed, {24}, weight, {}, 1e-5)));
  }
}

TEST_CASE("gradients of gelu and layer_norm have the same bits for any number of threads",
          "[functional]") {
  const Variables in = norm_inputs({700, 65}, true);
  for (const Function& f : {Function(gelu), Function(norm)}) {
    Variables expected;
    for (const int count : {1, 2, 3, 4}) {
      const Threads threads(count);
      const Variables leaves = to(at::kFloat, in);
      const Variables results =
          torch::autograd::grad({f(leaves)}, leaves, {in[0]}, {}, false, /*allow_unused=*/true);
      if (expected.empty()) expected = results;
      for (size_t i = 0; i < results.size(); ++i) {
        CHECK((!results[i].defined() || results[i].equal(expected[i])));
      }
    }
  }
}
