// SPDX-License-Identifier: MIT
// Shapes, heads and strides of the inputs, on every path.
#include <functional>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

TEST_CASE("attention agrees with LibTorch for any number of leading dimensions", "[attention]") {
  for (const std::vector<int64_t>& leading :
       {std::vector<int64_t>{}, {3}, {2, 3}, {2, 1, 3}, {1, 2, 1, 3}}) {
    const Inputs in = random_inputs(leading, 5, 7, 8, 6);
    for (const Path& path : paths()) {
      INFO(path.name << " with leading dimensions " << leading.size());
      CHECK_THAT(path.output(in, {}), AllClose(libtorch_attention(in), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("consecutive query heads share a key/value head", "[attention]") {
  const at::Tensor q = random_inputs({2, 6}, 4, 5, 8, 6).q;
  const Inputs kv = random_inputs({2, 2}, 4, 5, 8, 6, at::kFloat, 2);
  const Inputs repeated{q, kv.k.repeat_interleave(3, 1), kv.v.repeat_interleave(3, 1)};
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output({q, kv.k, kv.v}, {.grouped_queries = true}),
               AllClose(path.output(repeated, {}), 0, 1e-6));
    CHECK_THROWS_AS(path.output({q, kv.k, kv.v}, {}), c10::Error);
  }
  SECTION("gradients of a shared head are summed") {
    const Inputs shared = Inputs{q, kv.k, kv.v}.requires_grad();
    const Inputs apart = repeated.requires_grad();
    for (const Path& path : paths()) {
      const at::Tensor a = path.output(shared, {.grouped_queries = true});
      const at::Tensor b = path.output(apart, {});
      const auto expected = gradients(b, at::ones_like(b), {apart.q, apart.k, apart.v});
      const auto actual = gradients(a, at::ones_like(a), {shared.q, shared.k, shared.v});
      CHECK_THAT(actual[0], AllClose(expected[0], 1e-5, 1e-6));
      CHECK_THAT(actual[1], AllClose(expected[1].reshape({2, 2, 3, 5, 8}).sum(2), 1e-5, 1e-6));
      CHECK_THAT(actual[2], AllClose(expected[2].reshape({2, 2, 3, 5, 6}).sum(2), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("attention accepts inputs of any strides", "[attention]") {
  SECTION("a worked example whose innermost dimension is not contiguous") {
    const at::Tensor x = torch::tensor({{.1, .2}, {.3, .4}, {.5, .6}}).to(at::kFloat).t();
    const Inputs in{x, x, torch::tensor({{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}})};
    for (const Path& path : paths()) {
      INFO(path.name);
      CHECK_THAT(path.output(in, {}),
                 CloseTo(torch::tensor({{2.53896238, 3.53896238, 4.53896238},
                                        {2.55194075, 3.55194075, 4.55194075}})));
    }
  }
  const Inputs base = random_inputs({2, 3}, 6, 6, 8, 8);
  using View = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<std::string, View>> views = {
      {"transposed storage",
       [](const at::Tensor& t) { return t.transpose(-2, -1).contiguous().transpose(-2, -1); }},
      {"heads inside tokens",
       [](const at::Tensor& t) { return t.transpose(1, 2).contiguous().transpose(1, 2); }},
      {"every second column",
       [](const at::Tensor& t) {
         return at::cat({t, t}, -1).slice(-1, 0, std::nullopt, 2);
       }},
      {"batch by expand",
       [](const at::Tensor& t) {
         return t.narrow(0, 0, 1).expand({2, 3, 6, 8});
       }},
      {"tokens by expand",
       [](const at::Tensor& t) {
         return t.narrow(2, 0, 1).expand({2, 3, 6, 8});
       }},
      {"an offset into a larger tensor",
       [](const at::Tensor& t) {
         return at::constant_pad_nd(t, {3, 5, 2, 1}, kNan).narrow(-1, 3, 8).narrow(-2, 2, 6);
       }},
  };
  for (const auto& [name, view] : views) {
    for (const int strided : {0, 1, 2, 3}) {  // q alone, k alone, v alone, all of them
      Inputs in = base.requires_grad();
      const auto choose = [&, &view = view](const at::Tensor& t, int which) {
        return strided == which || strided == 3 ? view(t) : t;
      };
      const Inputs viewed{choose(in.q, 0), choose(in.k, 1), choose(in.v, 2)};
      const Inputs copies =
          Inputs{viewed.q.contiguous(), viewed.k.contiguous(), viewed.v.contiguous()}
              .requires_grad();
      for (const Path& path : paths()) {
        INFO(path.name << ", " << name << ", which " << strided);
        const at::Tensor output = path.output(viewed, {});
        const at::Tensor expected = path.output(copies, {});
        CHECK_THAT(output, AllClose(expected, 0, 1e-6));
        const auto actual_gradients =
            gradients(output, at::ones_like(output), {viewed.q, viewed.k, viewed.v});
        const auto expected_gradients =
            gradients(expected, at::ones_like(expected), {copies.q, copies.k, copies.v});
        for (size_t i = 0; i < 3; ++i) {
          CHECK_THAT(actual_gradients[i], AllClose(expected_gradients[i], 1e-5, 1e-6));
        }
      }
    }
  }
}

TEST_CASE("empty inputs give empty or zero results and gradients", "[attention]") {
  struct Row {
    Inputs in;
    std::vector<int64_t> output, weights;
  };
  const std::vector<Row> rows = {
      {random_inputs({0}, 4, 4, 8, 8), {0, 4, 8}, {0, 4, 4}},
      {random_inputs({2}, 0, 5, 8, 8), {2, 0, 8}, {2, 0, 5}},
      {random_inputs({2}, 3, 0, 8, 8), {2, 3, 8}, {2, 3, 0}},
      {random_inputs({2, 0}, 3, 4, 8, 8), {2, 0, 3, 8}, {2, 0, 3, 4}},
      {random_inputs({2}, 3, 4, 8, 0), {2, 3, 0}, {2, 3, 4}},
  };
  for (const Row& row : rows) {
    for (const Causal causal : {Causal::kNone, Causal::kUpperLeft, Causal::kLowerRight}) {
      const Inputs in = row.in.requires_grad();
      CHECK(attention_steps(in.q, in.k, in.v, {.causal = causal}).weights.sizes() == row.weights);
      for (const Path& path : paths()) {
        INFO(path.name << ", output " << c10::str(at::IntArrayRef(row.output)));
        const at::Tensor output = path.output(in, {.causal = causal});
        CHECK_THAT(output, Equals(at::zeros(row.output)));
        const auto grads = gradients(output, at::ones_like(output), {in.q, in.k, in.v});
        CHECK_THAT(grads[0], Equals(at::zeros_like(in.q)));
        CHECK_THAT(grads[1], Equals(at::zeros_like(in.k)));
        CHECK_THAT(grads[2], Equals(at::zeros_like(in.v)));
      }
    }
  }
  SECTION("with d_k = 0 and a scale, all scores are 0") {
    const Inputs in = random_inputs({2}, 3, 4, 0, 5);
    for (const Path& path : paths()) {
      CHECK_THAT(path.output(in, {.scale = 1.0}),
                 CloseTo(in.v.mean(-2, /*keepdim=*/true).expand({2, 3, 5})));
    }
  }
}

TEST_CASE("attention on the meta device returns the shape of the output", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  const Inputs meta{in.q.to(at::kMeta), in.k.to(at::kMeta), in.v.to(at::kMeta)};
  for (const Path& path : paths()) {
    CHECK(path.output(meta, {.causal = Causal::kLowerRight}).sizes() ==
          at::IntArrayRef({2, 3, 4, 6}));
  }
}
