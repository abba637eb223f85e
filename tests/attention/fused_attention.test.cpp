// SPDX-License-Identifier: MIT
// The fused path: layouts, grouped queries, special values and gradients.
#include <cmath>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("views of a packed projection give the same bits as copies", "[fused]") {
  torch::manual_seed(2);
  for (const int64_t hs : {32, 40, 64, 128}) {
    const at::Tensor packed = at::randn({2, 70, 3, 4, hs}).permute({2, 0, 3, 1, 4});
    const Inputs views{packed[0], packed[1], packed[2]};
    const Inputs copies{views.q.contiguous(), views.k.contiguous(), views.v.contiguous()};
    CHECK_THAT(all_results(views, {.causal = Causal::kUpperLeft}),
               Equals(all_results(copies, {.causal = Causal::kUpperLeft})));
    const at::Tensor output = attention(views);
    CHECK(output.transpose(1, 2).is_contiguous());  // so joining the heads does not copy
  }
}

TEST_CASE("strided and expanded inputs and upstream gradients give the same bits as copies",
          "[fused]") {
  const Inputs in = random_inputs({2, 3}, 33, 20, 16, 16);
  const Inputs strided{at::stack({in.q, in.q}, -1).select(-1, 0),
                       in.k.transpose(-1, -2).contiguous().transpose(-1, -2),
                       at::stack({in.v, in.v}, 1).select(1, 1)};
  CHECK_THAT(attention(strided), Equals(attention(in)));

  const Inputs one = random_inputs({1, 1}, 1, 20, 16, 16);
  const Inputs expanded{one.q.expand({2, 3, 33, 16}), one.k.expand({2, 3, 20, 16}),
                        one.v.expand({2, 3, 20, 16})};
  const Inputs copies{expanded.q.contiguous(), expanded.k.contiguous(), expanded.v.contiguous()};
  CHECK_THAT(attention(expanded), Equals(attention(copies)));

  const Inputs leaves = in.requires_grad();
  const at::Tensor output = attention(leaves);
  const at::Tensor stride_0 = at::ones({}).expand_as(output);
  const auto expected = gradients(output, stride_0.contiguous(), {leaves.q, leaves.k, leaves.v});
  const auto actual = gradients(output, stride_0, {leaves.q, leaves.k, leaves.v});
  for (size_t i = 0; i < 3; ++i) CHECK_THAT(actual[i], Equals(expected[i]));
}

TEST_CASE("a negated view is read with its sign", "[fused]") {
  const Inputs in = random_inputs({2, 3}, 33, 20, 16, 16);
  const at::Tensor bias = at::randn({33, 20});
  CHECK_THAT(attention({at::_neg_view(in.q), at::_neg_view(in.k), at::_neg_view(in.v)},
                       {.mask = at::_neg_view(bias)}),
             Equals(attention({-in.q, -in.k, -in.v}, {.mask = -bias})));
}

TEST_CASE("grouped queries have the gradients of repeated heads", "[fused]") {
  for (const int64_t Tq : {1, 3, 70}) {
    const Inputs in = random_inputs({2, 6}, Tq, 50, 16, 8);
    const Inputs shared{in.q, in.k.slice(1, 0, 2), in.v.slice(1, 0, 2)};
    for (const Causal causal : {Causal::kNone, Causal::kLowerRight, Causal::kUpperLeft}) {
      const AttentionOptions options{.causal = causal, .grouped_queries = true};
      Inputs a = shared.requires_grad(), b = shared.requires_grad();
      const at::Tensor output = attention(a, options);
      const at::Tensor repeated = attention(
          {b.q, b.k.repeat_interleave(3, 1), b.v.repeat_interleave(3, 1)}, {.causal = causal});
      CHECK_THAT(output, Equals(repeated));
      const at::Tensor upstream = at::randn_like(output);
      const auto actual = gradients(output, upstream, {a.q, a.k, a.v});
      const auto expected = gradients(repeated, upstream, {b.q, b.k, b.v});
      for (size_t i = 0; i < 3; ++i) CHECK_THAT(actual[i], AllClose(expected[i], 1e-5, 1e-5));
    }
  }
}

TEST_CASE("keys and values have zero gradients if there is no query head", "[fused]") {
  for (const int64_t Tq : {1, 70}) {
    const Inputs in{at::zeros({2, 0, Tq, 8}).requires_grad_(),
                    at::randn({2, 3, 50, 8}).requires_grad_(),
                    at::randn({2, 3, 50, 8}).requires_grad_()};
    const at::Tensor output = attention(in, {.grouped_queries = true});
    const auto actual = gradients(output, at::ones_like(output), {in.q, in.k, in.v});
    CHECK_THAT(actual[0], Equals(at::zeros_like(in.q)));
    CHECK_THAT(actual[1], Equals(at::zeros_like(in.k)));
    CHECK_THAT(actual[2], Equals(at::zeros_like(in.v)));
  }
}

TEST_CASE("a visible NaN propagates to all outputs and gradients that depend on it", "[fused]") {
  for (const int64_t Tq : {1, 70}) {
    const Inputs in = random_inputs({1}, Tq, 70, 24, 24);
    in.k[0][40].fill_(std::nanf(""));
    const Inputs leaves = in.requires_grad();
    const at::Tensor output = attention(leaves);
    CHECK(output.isnan().all().item<bool>());
    for (const at::Tensor& gradient :
         gradients(output, at::ones_like(output), {leaves.q, leaves.k, leaves.v})) {
      CHECK(gradient.isnan().all().item<bool>());
    }
  }
}

TEST_CASE("the largest finite mask entries do not hide a key", "[fused]") {
  const Inputs in = random_inputs({1}, 20, 30, 8, 8);
  for (const float entry : {3.4e38F, -3.4e38F}) {
    const at::Tensor output = attention(in, {.mask = at::full({20, 30}, entry)});
    CHECK_THAT(output, AllClose(in.v.mean(1, true).expand({1, 20, 8}), 1e-5, 1e-5));
  }
}

TEST_CASE("gradients are accurate for mask entries of any size", "[fused]") {
  for (const int64_t Tq : {3, 40}) {
    const Inputs base = random_inputs({2}, Tq, 7, 4, 4);
    for (const double added : {-3e38, -1e30, -2e4, 1e4}) {
      const AttentionOptions options{.mask = at::full({Tq, 7}, added)};
      const Inputs fused = base.requires_grad(), exact = base.requires_grad();
      const at::Tensor upstream = at::randn({2, Tq, 4});
      const auto actual =
          gradients(attention(fused, options), upstream, {fused.q, fused.k, fused.v});
      const auto expected = gradients(attention_steps(exact.q, exact.k, exact.v, options).output,
                                      upstream, {exact.q, exact.k, exact.v});
      for (size_t i = 0; i < 3; ++i) {
        INFO("mask " << added << ", Tq " << Tq << ", result " << i);
        CHECK_THAT(actual[i], AllClose(expected[i], 5e-3, 5e-3));
      }
    }
  }
}

TEST_CASE("second-order gradients of the fused path equal those of the composite path", "[fused]") {
  const Inputs base = random_inputs({2}, 5, 6, 4, 4);
  const auto second = [](const Path& path, const Inputs& inputs) {
    const Inputs in = inputs.requires_grad();
    const at::Tensor output = path.output(in, {.causal = Causal::kLowerRight});
    const auto first = gradients(output, output.detach().cos(), {in.q, in.k, in.v}, true);
    const at::Tensor loss =
        first[0].square().sum() + first[1].sin().sum() + first[2].square().sum();
    return gradients(loss, at::ones({}, loss.options()), {in.q, in.k, in.v});
  };
  const auto fused = second(paths()[0], base);
  const auto composite = second(paths()[1], base.to(at::kDouble));
  for (size_t i = 0; i < 3; ++i) CHECK_THAT(fused[i], AllClose(composite[i], 1e-4, 1e-5));
}
