// SPDX-License-Identifier: MIT
// Scores and masks at the ends of float32, on every path and every instruction set.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/attention_support.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Runs `check(path, Tq)` on every path and instruction set: for one query (decoding), for a few and
// for more queries than a vector holds.
template <class Check>
void for_each_path(const Check& check) {
  for_each_target([&] {
    for (const Path& path : paths()) {
      for (const int64_t Tq : {1, 5, 40}) {
        INFO(path.name << ", " << Tq << " queries");
        check(path, Tq);
      }
    }
  });
}

// Tq equal queries.  (Tq, d_k)
at::Tensor queries(const std::vector<float>& query, int64_t Tq) {
  return torch::tensor(query).repeat({Tq, 1});
}

// One query with d_k = 1 against keys and values with d = 1.
struct Row {
  float query;
  std::vector<double> keys, values = {1, 2};
  std::vector<float> mask = {};
  double scale = 1.0;
  float expected;
};

void check_row(const Row& row) {
  for_each_path([&](const Path& path, int64_t Tq) {
    AttentionOptions options{.scale = row.scale};
    if (!row.mask.empty()) options.mask = torch::tensor(row.mask);
    const at::Tensor output =
        path.output({queries({row.query}, Tq), column(row.keys), column(row.values)}, options);
    CHECK_THAT(output, AllClose(at::full({Tq, 1}, row.expected), 1e-4, 0));
  });
}

}  // namespace

TEST_CASE("large scores keep the digits of their differences", "[attention]") {
  // Scores s^2 and s^2 - 1: the weights are 1 / (1 + e^-1) and 1 / (1 + e) at every s.
  for (const float s : {1.0F, 32.0F, 100.0F, 1000.0F, 4000.0F}) {
    for (const double sign : {1.0, -1.0}) {
      for_each_path([&](const Path& path, int64_t Tq) {
        const auto t = static_cast<float>(sign);
        const at::Tensor k = torch::tensor({{t * s, 0.0F}, {t * s, -t}});
        const Inputs in{queries({s, 1.0F}, Tq), k, column({0, 1})};
        for (const auto& mask : {std::optional<at::Tensor>(), std::optional(at::zeros({1, 2}))}) {
          const at::Tensor output = path.output(in, {.mask = mask, .scale = sign});
          CHECK_THAT(output, AllClose(at::full({Tq, 1}, 0.268941421), 1e-6, 0));
        }
      });
    }
  }
}

TEST_CASE("scores at the ends of float32 are compared, not rounded to infinity", "[attention]") {
  check_row({.query = 1, .keys = {-3e38F, -2.5e38F}, .expected = 2});
  check_row({.query = 1, .keys = {3e38F, 2.5e38F}, .expected = 1});
  check_row(
      {.query = 1e-38F, .keys = {1, 0}, .values = {1, 2}, .scale = 3e38, .expected = 1.0474F});
  check_row({.query = 1e30F, .keys = {1e8F, 0}, .scale = 1e-38, .expected = 1.268941F});
  // Scores 40 and 38. The query times the scale is beyond float32.
  check_row({.query = 1e9F, .keys = {2e-38F, 1.9e-38F}, .scale = 2e30, .expected = 1.119203F});
}

TEST_CASE("gradients of a very small or large scale keep their digits", "[attention]") {
  // dq = scale / 2 * upstream * (v_0 - v_1) * k_0, where scale * upstream is subnormal or infinite.
  for (const double scale : {1e-27, 1e30}) {
    const double upstream = scale < 1 ? 1e-17 : 1e15, v = scale < 1 ? 1e30 : 1e-20;
    for_each_path([&](const Path& path, int64_t Tq) {
      const Inputs leaves =
          Inputs{queries({0}, Tq), column({1e-7, -1e-7}), column({v, -v})}.requires_grad();
      const at::Tensor output = path.output(leaves, {.scale = scale});
      const auto found = gradients(output, at::full_like(output, upstream), {leaves.q});
      const double expected = scale * upstream * v * 1e-7;
      CHECK_THAT(found[0] / expected, AllClose(at::ones({Tq, 1}), 1e-5, 0));
    });
  }
}

TEST_CASE("a visible score that is infinite gives NaN", "[attention]") {
  check_row({.query = -INFINITY, .keys = {1, 2}, .expected = kNaN});
  check_row({.query = INFINITY, .keys = {1, 2}, .expected = kNaN});
  check_row({.query = 1, .keys = {1, 2}, .mask = {0, INFINITY}, .expected = kNaN});
  check_row({.query = 1, .keys = {1, 2}, .mask = {INFINITY, 0}, .expected = kNaN});
  // The hidden key is not the one that is infinite.
  check_row({.query = -INFINITY, .keys = {1, 2}, .mask = {0, -INFINITY}, .expected = kNaN});
  // One finite score is enough for a softmax.
  check_row({.query = 1, .keys = {-INFINITY, 2}, .expected = 2});
  // A row without a visible key is 0 as ever.
  check_row({.query = 1, .keys = {1, 2}, .mask = {-INFINITY, -INFINITY}, .expected = 0});
  for_each_path([](const Path& path, int64_t Tq) {  // by causality alone
    const Inputs in{queries({-INFINITY}, Tq + 2), at::ones({Tq, 1}), at::ones({Tq, 1})};
    const at::Tensor output = path.output(in, {.scale = 1.0, .causal = Causal::kLowerRight});
    CHECK(output.slice(0, 0, 2).eq(0).all().item<bool>());
    CHECK(output.slice(0, 2).isnan().all().item<bool>());
  });
}

TEST_CASE("a finite mask entry never hides a key", "[attention]") {
  check_row({.query = 0, .keys = {1, 1}, .mask = {-3.4e38F, -2.5e38F}, .expected = 2});
  check_row({.query = 0, .keys = {1, 1}, .mask = {3.4e38F, 2.5e38F}, .expected = 1});
  // Entries that float32 cannot hold.
  for (const double entry : {-1e39, std::numeric_limits<double>::lowest()}) {
    for_each_path([&](const Path& path, int64_t Tq) {
      const Inputs in{queries({0}, Tq), column({1, 1}), column({1, 2})};
      const at::Tensor mask = at::full({2}, entry, at::kDouble);
      CHECK_THAT(path.output(in, {.mask = mask}), AllClose(at::full({Tq, 1}, 1.5), 1e-6, 0));
    });
  }
}

TEST_CASE("a scale that float32 cannot hold is an error, unless float64 is computed",
          "[attention]") {
  const Inputs in = random_inputs({}, 2, 2, 1, 1);
  CHECK_THROWS_WITH(mini::scaled_dot_product_attention(in.q, in.k, in.v, {.scale = 1e39}),
                    ContainsSubstring("expected a scale that float32 can hold, got 1e+39"));
  const Inputs wide = in.to(at::kDouble);
  CHECK(mini::scaled_dot_product_attention(wide.q, wide.k, wide.v, {.scale = 1e39})
            .isfinite()
            .all()
            .item<bool>());
}

TEST_CASE("where a query sees one key, q and k have no gradient", "[attention]") {
  // The weight is 1 whatever the score.
  for_each_path([](const Path& path, int64_t Tq) {
    for (const auto& [d_k, d_v, size] :
         {std::tuple<int64_t, int64_t, double>{64, 64, 1.0}, {64, 64, 1e4}, {1, 130, 1.0}}) {
      Inputs in = random_inputs({2}, Tq, 1, d_k, d_v);
      in.k.mul_(size);
      const Inputs leaves = in.requires_grad();
      const auto found = gradients(path.output(leaves, {}), at::randn({2, Tq, d_v}),
                                   {leaves.q, leaves.k, leaves.v});
      CHECK(found[0].eq(0).all().item<bool>());
      CHECK(found[1].eq(0).all().item<bool>());
    }
    // The first row of causal attention, and a mask with one true entry.
    const Inputs leaves = random_inputs({2}, Tq, Tq + 1, 16, 16).requires_grad();
    const at::Tensor keep = at::arange(Tq + 1).eq(1);
    for (const AttentionOptions& options :
         {AttentionOptions{.causal = Causal::kUpperLeft}, AttentionOptions{.mask = keep}}) {
      const auto found =
          gradients(path.output(leaves, options), at::randn({2, Tq, 16}), {leaves.q});
      CHECK(found[0].select(1, 0).eq(0).all().item<bool>());
    }
  });
}

TEST_CASE("integer scores of any size are within twice LibTorch's error", "[attention]") {
  for (const double size : {1.0, 8.0, 64.0, 512.0}) {
    for (const int64_t Tq : {1, 40}) {
      Inputs in = random_inputs({1, 4}, Tq, 77, 16, 16);
      in.q = in.q.mul(size).round();
      in.k = in.k.mul(size).round();
      const Inputs wide = in.to(at::kDouble);
      const at::Tensor exact = attention_steps(wide.q, wide.k, wide.v).output;
      const at::Tensor peer = at::scaled_dot_product_attention(in.q, in.k, in.v);
      const double bound = 2 * (peer - exact).abs().max().item<double>() + 1e-6;
      for_each_target([&] {
        const at::Tensor output = mini::scaled_dot_product_attention(in.q, in.k, in.v);
        INFO("size " << size << ", " << Tq << " queries");
        CHECK((output - exact).abs().max().item<double>() <= bound);
      });
    }
  }
}

TEST_CASE("wide heads are within twice LibTorch's error, gradients too", "[attention]") {
  for (const auto& [d_k, d_v] : std::vector<std::pair<int64_t, int64_t>>{
           {255, 255}, {257, 257}, {1000, 3}, {1, 1000}, {2048, 2048}, {4096, 64}}) {
    const Inputs in = random_inputs({1, 1}, 40, 50, d_k, d_v);
    const at::Tensor upstream = at::randn({1, 1, 40, d_v});
    const auto results = [&](const Inputs& inputs, const auto& attention) {
      const Inputs leaves = inputs.requires_grad();
      const at::Tensor output = attention(leaves);
      std::vector<at::Tensor> all =
          gradients(output, upstream.to(output.scalar_type()), {leaves.q, leaves.k, leaves.v});
      all.push_back(output.detach());
      return all;
    };
    const auto ours = [](const Inputs& i) {
      return mini::scaled_dot_product_attention(i.q, i.k, i.v);
    };
    const auto libtorch = [](const Inputs& i) {
      return at::scaled_dot_product_attention(i.q, i.k, i.v);
    };
    const auto exact = results(in.to(at::kDouble), ours);
    const auto peer = results(in, libtorch);
    const auto error = [](const at::Tensor& a, const at::Tensor& b) {
      return (a - b).square().mean().sqrt().item<double>();
    };
    for_each_target([&] {
      const auto found = results(in, ours);
      for (size_t i = 0; i < found.size(); ++i) {
        INFO("d_k " << in.q.size(-1) << ", d_v " << in.v.size(-1) << ", result " << i);
        const double size = exact[i].square().mean().sqrt().item<double>();
        CHECK(error(found[i], exact[i]) <=
              2 * error(peer[i], exact[i]) + 1e-6 * std::max(1.0, size));
      }
    });
  }
}

TEST_CASE("gradients of half inputs come from the output before it was rounded", "[attention]") {
  for_each_path([](const Path& path, int64_t Tq) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const Inputs leaves =
          Inputs{queries({1}, Tq).to(dtype), column({0, 1}).to(dtype), column({100, 101}).to(dtype)}
              .requires_grad();
      const at::Tensor output = path.output(leaves, {.scale = 1.0});
      const auto found = gradients(output, at::ones_like(output), {leaves.q});
      CHECK_THAT(found[0], AllClose(at::full({Tq, 1}, 0.1966), 2e-3, 0));
    }
  });
}
