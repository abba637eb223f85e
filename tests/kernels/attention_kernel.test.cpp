// SPDX-License-Identifier: MIT
// The fused kernel on every instruction set that this processor supports, compared with the formula
// in float64.
#include "kernels/attention_kernel.h"

#include <cmath>
#include <limits>
#include <random>

#include "support/attention_support.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Output and gradients.
std::vector<at::Tensor> results(const Path& path, const Inputs& inputs,
                                const AttentionOptions& options, const at::Tensor& upstream) {
  const Inputs in = inputs.requires_grad();
  const at::Tensor output = path.output(in, options);
  std::vector<at::Tensor> all =
      gradients(output, upstream.to(output.scalar_type()), {in.q, in.k, in.v});
  all.insert(all.begin(), output.detach());
  return all;
}

struct Size {
  int64_t Tq, Tk, d_k, d_v;
};

// Sizes around the boundaries of blocks (64, 128, 256), panels (2, 8, 16, 32) and tiles (6, 8).
const std::vector<Size> kSizes = {
    {1, 1, 1, 1},      {1, 33, 40, 40},   {2, 300, 17, 5},   {4, 4, 32, 32},    {5, 3, 3, 7},
    {7, 9, 8, 9},      {8, 8, 16, 16},    {9, 7, 15, 31},    {15, 17, 33, 33},  {16, 16, 64, 64},
    {17, 15, 48, 65},  {31, 33, 1, 130},  {32, 32, 32, 32},  {33, 31, 127, 2},  {63, 65, 31, 32},
    {64, 64, 32, 32},  {65, 63, 129, 16}, {77, 77, 40, 40},  {127, 129, 9, 96}, {128, 128, 64, 64},
    {129, 127, 32, 7}, {200, 70, 24, 24}, {255, 257, 16, 8}, {257, 640, 8, 16}, {300, 3, 300, 300},
};

std::vector<std::pair<std::string, AttentionOptions>> options_for(const Size& size) {
  torch::manual_seed(7);
  at::Tensor keep = at::rand({size.Tq, size.Tk}) < 0.6;
  keep[0].fill_(false);
  const at::Tensor bias = at::randn({2, 2, size.Tq, size.Tk})
                              .masked_fill(at::rand({2, 2, size.Tq, size.Tk}) < 0.2, -kInfinity);
  return {
      {"plain", {}},
      {"upper left", {.causal = Causal::kUpperLeft}},
      {"lower right", {.causal = Causal::kLowerRight}},
      {"bool mask", {.mask = keep}},
      {"float mask", {.mask = bias}},
      {"padding and causal", {.mask = keep.slice(0, size.Tq - 1), .causal = Causal::kLowerRight}},
      {"mask of each batch", {.mask = bias.slice(1, 0, 1)}},
      {"scale", {.scale = -1.5 / std::sqrt(static_cast<double>(size.d_k))}},
  };
}

// The contract's bound, forward and backward: the root mean square error is at most twice
// LibTorch's, plus 1e-6 for numbers of magnitude 1. If few keys get the gradients of many queries,
// the gradients have magnitude sqrt(Tq) / Tk, and the bound grows with it. The largest error may be
// eight times LibTorch's, because it varies from draw to draw. Short sequences have many heads to
// reduce this variation.
void check_error_bound(const Size& size, Causal causal) {
  const int64_t n_head = std::max<int64_t>(2, 32 / std::min(size.Tq, size.Tk));
  const Inputs in = random_inputs({1, n_head}, size.Tq, size.Tk, size.d_k, size.d_v);
  const at::Tensor upstream = at::randn({1, n_head, size.Tq, size.d_v});
  const AttentionOptions options{.causal = causal};
  const std::vector<at::Tensor> exact = results(paths()[1], in.to(at::kDouble), options, upstream);
  const Path libtorch{"LibTorch", [&](const Inputs& i, const AttentionOptions&) {
                        return at::scaled_dot_product_attention(i.q, i.k, i.v, {}, 0.0,
                                                                causal != Causal::kNone);
                      }};
  const std::vector<at::Tensor> peer = results(libtorch, in, options, upstream);
  const auto root_mean_square = [](const at::Tensor& t) {
    return t.square().mean().sqrt().item<double>();
  };
  const double rounding =
      1e-6 * std::max(1.0, std::sqrt(static_cast<double>(size.Tq)) / static_cast<double>(size.Tk));
  const auto largest = [](const at::Tensor& t) { return t.abs().max().item<double>(); };
  for_each_target([&] {
    const std::vector<at::Tensor> ours = results(paths()[0], in, options, upstream);
    for (size_t i = 0; i < ours.size(); ++i) {
      INFO("Tq " << size.Tq << " Tk " << size.Tk << " d_k " << size.d_k << " causal "
                 << (causal != Causal::kNone) << ", result " << i);
      const at::Tensor error = ours[i] - exact[i], peer_error = peer[i] - exact[i];
      CHECK(root_mean_square(error) <= 2 * root_mean_square(peer_error) + rounding);
      CHECK(largest(error) <= 8 * largest(peer_error) + rounding);
    }
  });
}

}  // namespace

TEST_CASE("2^x is within its stated error on every instruction set", "[kernel]") {
  std::vector<float> x;
  for (float value = -125.5F; value <= 0.0F; value += 0.000813F) x.push_back(value);
  std::vector<float> y(x.size());
  for_each_target([&] {
    kernels::exp2(x.data(), static_cast<int64_t>(x.size()), y.data());
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, std::abs(y[i] / std::exp2(static_cast<double>(x[i])) - 1.0));
    }
    CHECK(worst < 2.0e-7);

    const float special[] = {0.0F, -kInfinity, -200.0F, -1e30F, std::nanf("")};
    float result[5];
    kernels::exp2(special, 5, result);
    CHECK(result[0] == 1.0F);
    CHECK(result[1] == 0.0F);
    CHECK(result[2] < 1e-37F);
    CHECK(result[3] == 0.0F);
    CHECK(std::isnan(result[4]));
  });
}

TEST_CASE(
    "the kernel agrees with float64 at sizes around block boundaries on every instruction set",
    "[kernel]") {
  for (const Size& size : kSizes) {
    const Inputs in = random_inputs({2, 2}, size.Tq, size.Tk, size.d_k, size.d_v);
    const at::Tensor upstream = at::randn({2, 2, size.Tq, size.d_v});
    for (const auto& [name, options] : options_for(size)) {
      REQUIRE(attention_path(in.q, in.k, in.v, options).fused);
      const std::vector<at::Tensor> expected =
          results(paths()[1], in.to(at::kDouble), options, upstream);
      for_each_target([&] {
        const std::vector<at::Tensor> actual = results(paths()[0], in, options, upstream);
        for (size_t i = 0; i < actual.size(); ++i) {
          INFO("Tq " << size.Tq << " Tk " << size.Tk << " d_k " << size.d_k << " d_v " << size.d_v
                     << ' ' << name << ", result " << i);
          CHECK_THAT(actual[i], AllClose(expected[i], 2e-5, 3e-5));
        }
      });
    }
  }
}

TEST_CASE("the kernel's error is at most twice LibTorch's on every instruction set", "[kernel]") {
  for (const Size& size : {Size{64, 64, 32, 32},
                           {77, 77, 40, 40},
                           {256, 256, 64, 64},
                           {1, 1024, 64, 64},
                           {513, 300, 128, 128}}) {
    check_error_bound(size, Causal::kNone);
  }
}

TEST_CASE("the error bound holds at every head size and length near a boundary",
          "[kernel][.slow]") {
  const std::vector<int64_t> lengths = {1,   2,   15,  16,  17,  31,  32,  33,  63,  64,  65,
                                        127, 129, 191, 192, 193, 511, 512, 513, 767, 768, 769};
  for (const int64_t d : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 65, 96, 127, 128, 129}) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (const int64_t Tk : {lengths[i], lengths[lengths.size() - 1 - i]}) {
        check_error_bound({lengths[i], Tk, d, d}, Causal::kNone);
        check_error_bound({lengths[i], Tk, d, d}, Causal::kUpperLeft);
      }
    }
  }
}

TEST_CASE("rows that see no key are 0 and large scores are accurate on every instruction set",
          "[kernel]") {
  const Inputs in = random_inputs({1}, 40, 150, 16, 16);
  const at::Tensor upstream = at::randn({1, 40, 16});
  for_each_target([&] {
    for (const at::Tensor& mask :
         {at::zeros({40, 150}, at::kBool), at::full({40, 150}, -kInfinity)}) {
      for (const at::Tensor& result : results(paths()[0], in, {.mask = mask}, upstream)) {
        CHECK(result.eq(0).all().item<bool>());
      }
    }
    // One score exceeds the others by thousands, so the output is the value of that key.
    for (const double scale : {1e3, -1e3, 1e5}) {
      const at::Tensor exact = attention_steps(in.q.to(at::kDouble), in.k.to(at::kDouble),
                                               in.v.to(at::kDouble), {.scale = scale})
                                   .output;
      const at::Tensor output =
          mini::scaled_dot_product_attention(in.q, in.k, in.v, {.scale = scale});
      CHECK(output.isfinite().all().item<bool>());
      CHECK_THAT(output, AllClose(exact, 1e-2, 1e-2));
    }
  });
}

TEST_CASE("NaN in a hidden key does not affect a row; in a visible key it propagates", "[kernel]") {
  const Inputs in = random_inputs({1}, 70, 70, 24, 24);
  in.k[0][40].fill_(std::nanf(""));
  at::Tensor keep = at::ones({70, 70}, at::kBool);
  keep.select(1, 40).fill_(false);
  for_each_target([&] {
    const at::Tensor hidden = mini::scaled_dot_product_attention(in.q, in.k, in.v, {.mask = keep});
    CHECK(hidden.isfinite().all().item<bool>());
    const at::Tensor causal =
        mini::scaled_dot_product_attention(in.q, in.k, in.v, {.causal = Causal::kUpperLeft});
    CHECK(causal.slice(1, 0, 40).isfinite().all().item<bool>());
    CHECK(causal.slice(1, 40).isnan().all().item<bool>());
  });
}

TEST_CASE("the kernel does not read outside its tensors", "[kernel]") {
  // Each tensor is a slice of a larger tensor that is NaN outside the slice.
  const auto within_nan = [](const at::Tensor& t) {
    at::Tensor large = at::full({t.size(0), t.size(1) + 2, t.size(2) + 6}, std::nanf(""));
    at::Tensor middle = large.slice(1, 1, 1 + t.size(1)).slice(2, 3, 3 + t.size(2));
    middle.copy_(t);
    return middle;
  };
  for (const Size& size : kSizes) {
    const Inputs in = random_inputs({2}, size.Tq, size.Tk, size.d_k, size.d_v);
    const at::Tensor upstream = at::randn({2, size.Tq, size.d_v});
    const Inputs views{within_nan(in.q), within_nan(in.k), within_nan(in.v)};
    for_each_target([&] {
      const at::Tensor q = views.q.requires_grad_(), k = views.k.requires_grad_(),
                       v = views.v.requires_grad_();
      const at::Tensor output =
          mini::scaled_dot_product_attention(q, k, v, {.causal = Causal::kLowerRight});
      CHECK(output.isfinite().all().item<bool>());
      for (const at::Tensor& gradient : gradients(output, within_nan(upstream), {q, k, v})) {
        CHECK(gradient.isfinite().all().item<bool>());
      }
    });
  }
}
