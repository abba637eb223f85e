// SPDX-License-Identifier: MIT
// The values of attention, on every path. Expected numbers without a named oracle are computed by
// hand in double precision.
#include "mini/attention.h"

#include <cmath>
#include <limits>

#include "support/attention_support.h"
#include "support/threads.h"

using namespace mini;
using namespace mini::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Float32 against a nine-digit expectation.
AllClose CloseTo(const at::Tensor& expected) { return {expected, 1e-6, 1e-6}; }

at::Tensor column(std::vector<double> values) {
  return torch::tensor(values, at::kFloat).unsqueeze(-1);
}

// Three tokens whose third row of weights is e^0, e^0, e^sqrt(1/2), normalised.
Inputs three_tokens() {
  const at::Tensor x = torch::tensor({{1.f, 0.f}, {0.f, 1.f}, {1.f, 1.f}});
  return {x, x, torch::tensor({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}})};
}

at::Tensor libtorch_attention(const Inputs& in, const std::optional<at::Tensor>& mask = {},
                              bool is_causal = false, std::optional<double> scale = {}) {
  return at::scaled_dot_product_attention(in.q, in.k, in.v, mask, 0.0, is_causal, scale);
}

}  // namespace

TEST_CASE("attention computes the worked example of three tokens", "[attention]") {
  const Inputs in = three_tokens();
  const at::Tensor weights = attention_steps(in.q, in.k, in.v).weights;
  // Row 0: scores 1, 0, 1 over sqrt(2).
  const double e = std::exp(std::sqrt(0.5)), sum = 2 * e + 1;
  CHECK_THAT(weights[0], CloseTo(torch::tensor({e / sum, 1 / sum, e / sum})));
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {})[0],
               CloseTo(torch::tensor({(e * 1 + 3 + e * 5) / sum, (e * 2 + 4 + e * 6) / sum})));
  }
}

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

TEST_CASE("attention takes its scale from d_k, not from another width", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 6, 5, 9);
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {}),
               AllClose(path.output(in, {.scale = 1 / std::sqrt(5.0)}), 0, 1e-7));
  }
}

TEST_CASE("attention multiplies the scores by any finite scale", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 6, 5, 3);
  for (const double scale : {1.0, 0.0, -0.7, 2.5}) {
    const at::Tensor weights = at::softmax(at::matmul(in.q, in.k.transpose(-2, -1)) * scale, -1);
    for (const Path& path : paths()) {
      INFO(path.name << ", scale " << scale);
      CHECK_THAT(path.output(in, {.scale = scale}),
                 AllClose(at::matmul(weights, in.v), 1e-5, 1e-6));
    }
  }
  SECTION("0 means 0: every key weighs the same") {
    for (const Path& path : paths()) {
      CHECK_THAT(path.output(in, {.scale = 0.0}),
                 CloseTo(in.v.mean(-2, /*keepdim=*/true).expand({2, 4, 3})));
    }
  }
}

TEST_CASE("a row that sees no key gets weights and output 0", "[attention]") {
  const Inputs in = three_tokens();
  const at::Tensor keep = bools({3, 3}, {1, 0, 0, 0, 0, 0, 1, 1, 1});
  const at::Tensor bias = at::zeros({3, 3}).masked_fill(keep.logical_not(), -kInf);
  const at::Tensor weights =
      torch::tensor({{1.0, 0.0, 0.0}, {0.0, 0.0, 0.0}, {0.248255078, 0.248255078, 0.503489843}});
  const at::Tensor output = torch::tensor({{1.0, 2.0}, {0.0, 0.0}, {3.51046953, 4.51046953}});
  for (const at::Tensor& mask : {keep, bias}) {
    INFO("mask of " << mask.scalar_type());
    const AttentionSteps steps = attention_steps(in.q, in.k, in.v, {.mask = mask});
    CHECK_THAT(steps.weights, CloseTo(weights));
    CHECK_THAT(steps.weights.narrow(0, 0, 2), Equals(weights.narrow(0, 0, 2)));
    for (const Path& path : paths()) {
      INFO(path.name);
      const at::Tensor actual = path.output(in, {.mask = mask});
      CHECK_THAT(actual, CloseTo(output));
      CHECK_THAT(actual.narrow(0, 0, 2), Equals(output.narrow(0, 0, 2)));
    }
  }
  SECTION("also where only mask and causality together hide every key") {
    const at::Tensor without_first = bools({1, 3}, {0, 1, 1});
    for (const Causal causal : {Causal::kUpperLeft, Causal::kLowerRight}) {
      const AttentionOptions options{.mask = without_first, .causal = causal};
      CHECK_THAT(attention_steps(in.q, in.k, in.v, options).weights[0], Equals(at::zeros({3})));
      for (const Path& path : paths()) {
        INFO(path.name);
        const at::Tensor actual = path.output(in, options);
        CHECK_THAT(actual[0], Equals(at::zeros({2})));
        CHECK_THAT(actual[1], CloseTo(torch::tensor({3.0, 4.0})));
        CHECK(actual.isfinite().all().item<bool>());
      }
    }
  }
}

TEST_CASE("a finite mask value is an ordinary number, however low", "[attention]") {
  const Inputs in = three_tokens();
  const at::Tensor lowest = at::full({3, 3}, std::numeric_limits<float>::lowest());
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {.mask = lowest}),
               CloseTo(in.v.mean(0, /*keepdim=*/true).expand({3, 2})));
  }
}

TEST_CASE("causal attention aligns unequal lengths at either corner", "[attention]") {
  struct Row {
    int64_t Tq, Tk;
    Causal causal;
    std::vector<double> values, expected;
  };
  const std::vector<Row> rows = {
      {2, 5, Causal::kUpperLeft, {1, 2, 3, 4, 5}, {1, 1.5}},
      {2, 5, Causal::kLowerRight, {1, 2, 3, 4, 5}, {2.5, 3}},
      {5, 2, Causal::kUpperLeft, {10, 20}, {10, 15, 15, 15, 15}},
      {5, 2, Causal::kLowerRight, {10, 20}, {0, 0, 0, 10, 15}},
  };
  for (const Row& row : rows) {
    const Inputs in = Inputs{at::zeros({row.Tq, 1}), at::zeros({row.Tk, 1}), column(row.values)};
    for (const Path& path : paths()) {
      INFO(path.name << ", Tq " << row.Tq << ", Tk " << row.Tk);
      const Inputs leaves = in.requires_grad();
      const at::Tensor output = path.output(leaves, {.causal = row.causal});
      CHECK_THAT(output, CloseTo(column(row.expected)));
      for (const at::Tensor& gradient :
           gradients(output, at::ones_like(output), {leaves.q, leaves.k, leaves.v})) {
        CHECK(gradient.isfinite().all().item<bool>());
      }
    }
  }
}

TEST_CASE("causal weights right of the diagonal are exactly 0", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 6, 6, 8, 8);
  const at::Tensor weights =
      attention_steps(in.q, in.k, in.v, {.causal = Causal::kLowerRight}).weights;
  CHECK_THAT(weights.triu(1), Equals(at::zeros_like(weights)));
  CHECK_THAT(weights.sum(-1), CloseTo(at::ones({2, 3, 6})));
}

TEST_CASE("a causal prefix does not depend on what follows", "[attention]") {
  const Inputs in = random_inputs({2}, 6, 6, 8, 8);
  Inputs changed = in;
  for (at::Tensor* tensor : {&changed.q, &changed.k, &changed.v}) {
    *tensor = tensor->clone();
    tensor->narrow(-2, 3, 3).add_(10);
  }
  for (const Path& path : paths()) {
    INFO(path.name);
    const AttentionOptions options{.causal = Causal::kUpperLeft};
    CHECK_THAT(path.output(changed, options).narrow(-2, 0, 3),
               AllClose(path.output(in, options).narrow(-2, 0, 3), 0, 1e-6));
  }
  SECTION("bit for bit where the steps are kept") {
    const AttentionOptions options{.causal = Causal::kUpperLeft};
    CHECK_THAT(attention_steps(changed.q, changed.k, changed.v, options).output.narrow(-2, 0, 3),
               Equals(attention_steps(in.q, in.k, in.v, options).output.narrow(-2, 0, 3)));
  }
}

TEST_CASE("huge and very negative scores lose nothing", "[attention]") {
  struct Row {
    std::vector<double> q, k, v;
    Causal causal;
    std::vector<double> first_weights;
    double first_output;
  };
  const std::vector<Row> rows = {
      {{100}, {100, 99}, {1, 2}, Causal::kNone, {1, 0}, 1},
      {{100}, {100, 100}, {1, 2}, Causal::kNone, {0.5, 0.5}, 1.5},
      {{100}, {-200, -201}, {1, 2}, Causal::kNone, {1, 0}, 1},
      {{100, 100}, {-200, -50}, {1, 2}, Causal::kUpperLeft, {1, 0}, 1},
  };
  for (const Row& row : rows) {
    const Inputs in{column(row.q), column(row.k), column(row.v)};
    const AttentionOptions options{.scale = 1.0, .causal = row.causal};
    CHECK_THAT(attention_steps(in.q, in.k, in.v, options).weights[0],
               AllClose(torch::tensor(row.first_weights), 0, 1e-40));
    for (const Path& path : paths()) {
      INFO(path.name);
      const Inputs leaves = in.requires_grad();
      const at::Tensor output = path.output(leaves, options);
      CHECK(output[0].item<double>() == row.first_output);
      for (const at::Tensor& gradient :
           gradients(output, at::ones_like(output), {leaves.q, leaves.k, leaves.v})) {
        CHECK(gradient.isfinite().all().item<bool>());
      }
    }
  }
}

TEST_CASE("attention is right at sizes that divide by nothing", "[attention]") {
  // q_ij = (i + 1)(j + 1) / 10, k_ij = (i - 1.5)(j - 1) / 2 + 0.1 i, v_ij = i + 10 j
  const at::Tensor i = at::arange(4, at::kFloat).unsqueeze(1), j = at::arange(3, at::kFloat);
  const Inputs in{(i + 1) * (j + 1) / 10, (i - 1.5) * (j - 1) / 2 + 0.1 * i, i + 10 * j};
  const at::Tensor first_column = column({1.61519178, 1.72873542, 1.83908703, 1.9448971});
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {}), CloseTo(first_column + 10 * j));
  }
}

TEST_CASE("attention broadcasts a mask as it says", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  torch::manual_seed(3);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{},
                                            {5},
                                            {1},
                                            {4, 5},
                                            {1, 5},
                                            {4, 1},
                                            {1, 1},
                                            {2, 3, 4, 5},
                                            {2, 1, 1, 5},
                                            {1, 3, 4, 1},
                                            {1, 1, 4, 5}}) {
    const at::Tensor added = at::randn(shape);
    const at::Tensor keep = at::randn(shape).gt(-0.5).logical_or(added.eq(added.max()));
    const at::Tensor added_in_full = added.expand({2, 3, 4, 5});
    const at::Tensor keep_in_full = keep.expand({2, 3, 4, 5});
    for (const Path& path : paths()) {
      INFO(path.name << ", mask " << c10::str(added.sizes()));
      CHECK_THAT(path.output(in, {.mask = added}),
                 AllClose(libtorch_attention(in, added_in_full), 1e-5, 1e-6));
      CHECK_THAT(path.output(in, {.mask = keep}),
                 AllClose(libtorch_attention(in, keep_in_full).nan_to_num(0), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("a floating mask may have any floating dtype", "[attention]") {
  torch::manual_seed(5);
  const at::Tensor bias = at::randn({4, 5}).to(at::kBFloat16);  // exact in every dtype below
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const Inputs in = random_inputs({2}, 4, 5, 8, 6, dtype);
    const at::ScalarType accumulation = dtype == at::kDouble ? at::kDouble : at::kFloat;
    for (const Path& path : paths()) {
      const at::Tensor expected = path.output(in, {.mask = bias.to(accumulation)});
      for (const at::ScalarType mask_dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        INFO(path.name << ", q " << dtype << ", mask " << mask_dtype);
        const at::Tensor output = path.output(in, {.mask = bias.to(mask_dtype)});
        CHECK(output.scalar_type() == dtype);
        CHECK_THAT(output, Equals(expected));
      }
    }
  }
}

TEST_CASE("causality and a mask hide a key where either does", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 6, 6, 8, 8);
  torch::manual_seed(4);
  const at::Tensor keep = at::rand({2, 1, 6, 6}).gt(0.3);
  const at::Tensor both = keep.logical_and(at::ones({6, 6}).tril().to(at::kBool));
  for (const Path& path : paths()) {
    INFO(path.name);
    CHECK_THAT(path.output(in, {.mask = keep, .causal = Causal::kLowerRight}),
               AllClose(path.output(in, {.mask = both}), 0, 1e-6));
  }
}

TEST_CASE("asking for the weights changes nothing in the output", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 6, 6, 8, 8);
  torch::manual_seed(6);
  const at::Tensor keep = at::rand({6, 6}).gt(0.3), bias = at::randn({6, 6});
  at::Tensor one_head_hidden = at::ones({2, 3, 6, 6}, at::kBool);
  one_head_hidden.select(1, 1).fill_(false);
  const std::vector<AttentionOptions> all = {
      {},
      {.causal = Causal::kLowerRight},
      {.mask = keep},
      {.mask = bias},
      {.mask = keep, .causal = Causal::kLowerRight},
      {.mask = one_head_hidden},
  };
  for (const AttentionOptions& options : all) {
    const AttentionSteps steps = attention_steps(in.q, in.k, in.v, options);
    CHECK_THAT(mini::scaled_dot_product_attention(in.q, in.k, in.v, options),
               AllClose(steps.output, 0, 1e-6));
    CHECK_THAT(at::matmul(steps.weights, in.v), AllClose(steps.output, 0, 1e-6));
    const at::Tensor sums = steps.weights.sum(-1);
    CHECK(((sums - 1).abs().lt(1e-6)).logical_or(sums.eq(0)).all().item<bool>());
  }
}

TEST_CASE("the steps are those of the equation", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 5, 8, 6);
  const at::Tensor bias = at::ones({4, 5});
  const AttentionSteps steps = attention_steps(in.q, in.k, in.v, {.mask = bias, .scale = 0.5});
  CHECK_THAT(steps.scores, AllClose(at::matmul(in.q, in.k.transpose(1, 2)), 1e-6, 1e-6));
  CHECK_THAT(steps.scaled_scores, Equals(steps.scores * 0.5));  // before the mask
  CHECK_THAT(steps.weights, AllClose(at::softmax(steps.scores * 0.5 + 1, -1), 1e-6, 1e-7));
  CHECK_THAT(steps.output, AllClose(at::matmul(steps.weights, in.v), 1e-6, 1e-7));
  SECTION("half inputs have float32 steps and an output of their own dtype") {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const Inputs half = in.to(dtype);
      const AttentionSteps halves = attention_steps(half.q, half.k, half.v);
      CHECK(halves.scores.scalar_type() == at::kFloat);
      CHECK(halves.scaled_scores.scalar_type() == at::kFloat);
      CHECK(halves.weights.scalar_type() == at::kFloat);
      CHECK(halves.output.scalar_type() == dtype);
    }
  }
}

TEST_CASE("NaN and infinity show in the rows that see them, and only there", "[attention]") {
  for (const double bad : {kNan, kInf}) {
    Inputs in = random_inputs({2}, 4, 5, 8, 6);
    const at::Tensor clean_k = in.k.clone();
    const at::Tensor keep = bools({4, 5}, {1, 1, 0, 1, 1, 1, 1, 1, 1, 1,  //
                                           1, 1, 0, 1, 1, 0, 0, 0, 0, 0});
    const at::Tensor bias = at::zeros({4, 5}).masked_fill(keep.logical_not(), -kInf);
    in.k[0][2].fill_(bad);
    const Inputs clean{in.q, clean_k, in.v};
    for (const at::Tensor& mask : {keep, bias}) {
      for (const Path& path : paths()) {
        INFO(path.name << ", " << bad << ", mask of " << mask.scalar_type());
        const at::Tensor output = path.output(in, {.mask = mask});
        const at::Tensor expected = path.output(clean, {.mask = mask});
        CHECK(output[0][1].isnan().any().item<bool>());  // sees the bad key
        for (const int64_t row : {0, 2, 3}) {            // do not
          CHECK_THAT(output[0][row], AllClose(expected[0][row], 0, 1e-6));
        }
        CHECK_THAT(output[1], AllClose(expected[1], 0, 1e-6));
      }
    }
  }
  SECTION("a NaN query fills its row, a NaN value its column") {
    for (const Path& path : paths()) {
      INFO(path.name);
      Inputs in = random_inputs({1}, 3, 3, 4, 4);
      in.q[0][1][0] = kNan;
      CHECK_THAT(path.output(in, {}).isnan()[0].all(-1),
                 Equals(torch::tensor({false, true, false})));
      in = random_inputs({1}, 3, 3, 4, 4);
      in.v[0][1][2] = kNan;
      CHECK(path.output(in, {}).isnan().select(-1, 2).all().item<bool>());
      CHECK(path.output(in, {}).isnan().sum().item<int64_t>() == 3);
    }
  }
  SECTION("a hidden key that is NaN leaves causal rows before it alone") {
    Inputs in = random_inputs({1}, 4, 4, 8, 8);
    const AttentionOptions causal{.causal = Causal::kUpperLeft};
    for (const Path& path : paths()) {
      INFO(path.name);
      const at::Tensor expected = path.output(in, causal);
      Inputs bad = in;
      bad.k = in.k.clone();
      bad.k[0][2].fill_(kNan);
      const at::Tensor output = path.output(bad, causal);
      CHECK_THAT(output[0].narrow(0, 0, 2), AllClose(expected[0].narrow(0, 0, 2), 0, 1e-6));
      CHECK(output[0].narrow(0, 2, 2).isnan().all().item<bool>());
    }
  }
}

TEST_CASE("attention honours any strides", "[attention]") {
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

TEST_CASE("attention of nothing has the right shape", "[attention]") {
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

TEST_CASE("one token attends to itself", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 1, 1, 7, 5);
  for (const Path& path : paths()) {
    CHECK_THAT(path.output(in, {}), Equals(in.v));
    CHECK_THAT(path.output(in, {.causal = Causal::kUpperLeft}), Equals(in.v));
  }
}

TEST_CASE("permuting keys together with values changes nothing", "[attention]") {
  const Inputs in = random_inputs({2}, 5, 9, 8, 6);
  const at::Tensor order = at::randperm(9);
  for (const Path& path : paths()) {
    CHECK_THAT(path.output({in.q, in.k.index_select(1, order), in.v.index_select(1, order)}, {}),
               AllClose(path.output(in, {}), 1e-5, 1e-6));
  }
}

TEST_CASE("grouped queries share key and value heads in order", "[attention]") {
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

TEST_CASE("dropout acts on the weights, only in training", "[attention]") {
  const Inputs in = random_inputs({2}, 4, 6, 8, 6);
  for (const Path& path : paths()) {
    INFO(path.name);
    const at::Tensor undropped = path.output(in, {});
    CHECK_THAT(path.output(in, {.dropout = 0.5}), Equals(undropped));

    torch::manual_seed(1);
    const at::Tensor first = path.output(in, {.dropout = 0.5, .training = true});
    const at::Tensor second = path.output(in, {.dropout = 0.5, .training = true});
    torch::manual_seed(1);
    CHECK_THAT(path.output(in, {.dropout = 0.5, .training = true}), Equals(first));
    CHECK_FALSE(at::equal(first, second));

    // Dropping everything gives 0, not 0 / 0.
    const Inputs leaves = in.requires_grad();
    const at::Tensor nothing = path.output(leaves, {.dropout = 1.0, .training = true});
    CHECK_THAT(nothing, Equals(at::zeros_like(undropped)));
    for (const at::Tensor& gradient :
         gradients(nothing, at::ones_like(nothing), {leaves.q, leaves.k, leaves.v})) {
      CHECK_THAT(gradient, Equals(at::zeros_like(gradient)));
    }
  }
  SECTION("each weight is dropped on its own, and what stays is scaled up") {
    const at::Tensor v = at::eye(6).expand({2, 6, 6});  // the output is then the weights
    const AttentionSteps steps = attention_steps(in.q, in.k, v, {.dropout = 0.5, .training = true});
    const at::Tensor kept = steps.output != 0;
    CHECK_THAT(steps.output, AllClose(2.0 * steps.weights * kept, 1e-6, 1e-7));
    CHECK_FALSE(at::equal(kept.select(1, 0), kept.select(1, 1)));
  }
  SECTION("the steps' weights are those before dropout") {
    const AttentionSteps steps =
        attention_steps(in.q, in.k, in.v, {.dropout = 0.5, .training = true});
    CHECK_THAT(steps.weights, Equals(attention_steps(in.q, in.k, in.v).weights));
    CHECK_FALSE(at::allclose(at::matmul(steps.weights, in.v), steps.output));
  }
  SECTION("a generator of one's own is used, and the global one left alone") {
    torch::manual_seed(9);
    const at::Tensor expected_next = at::rand({3});
    torch::manual_seed(9);
    const auto with_seed = [&](uint64_t seed) {
      return mini::scaled_dot_product_attention(
          in.q, in.k, in.v,
          {.dropout = 0.5,
           .training = true,
           .generator = at::make_generator<at::CPUGeneratorImpl>(seed)});
    };
    CHECK_THAT(with_seed(5), Equals(with_seed(5)));
    CHECK_FALSE(at::equal(with_seed(5), with_seed(6)));
    CHECK_THAT(at::rand({3}), Equals(expected_next));
  }
  SECTION("the mean over many draws is the output without dropout") {
    const Inputs small = random_inputs({}, 2, 4, 4, 3);
    const int64_t draws = 4000;
    at::Tensor sum = at::zeros({2, 3}, at::kDouble), squares = at::zeros({2, 3}, at::kDouble);
    for (int64_t seed = 0; seed < draws; ++seed) {
      torch::manual_seed(static_cast<uint64_t>(seed));
      const at::Tensor sample = mini::scaled_dot_product_attention(
                                    small.q, small.k, small.v, {.dropout = 0.3, .training = true})
                                    .to(at::kDouble);
      sum += sample;
      squares += sample * sample;
    }
    const at::Tensor mean = sum / draws;
    const at::Tensor error = ((squares / draws - mean * mean) / draws).sqrt();
    const at::Tensor expected = mini::scaled_dot_product_attention(small.q, small.k, small.v);
    CHECK(((mean - expected).abs() <= 5 * error + 1e-6).all().item<bool>());
  }
}

TEST_CASE("attention is no further from float64 than LibTorch's own", "[attention]") {
  struct Shape {
    std::vector<int64_t> leading;
    int64_t Tq, Tk, d_k, d_v;
  };
  const std::vector<Shape> shapes = {{{2, 3}, 16, 16, 8, 8},   {{1, 2}, 33, 65, 17, 9},
                                     {{1, 1}, 64, 64, 32, 32}, {{2, 2}, 1, 129, 40, 40},
                                     {{1, 2}, 77, 77, 96, 96}, {{1, 1}, 130, 190, 129, 33}};
  for (const Shape& s : shapes) {
    const Inputs exact = random_inputs(s.leading, s.Tq, s.Tk, s.d_k, s.d_v, at::kDouble);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const Inputs rounded = exact.to(dtype);
      const Inputs reference = rounded.to(at::kDouble).requires_grad();
      const Inputs theirs = rounded.requires_grad();
      const at::Tensor upstream = at::randn_like(reference.v.new_empty({s.Tq, s.d_v}))
                                      .expand_as(libtorch_attention(reference));
      const auto outcome = [&](const at::Tensor& output, const Inputs& in) {
        std::vector<at::Tensor> all =
            gradients(output, upstream.to(output.scalar_type()), {in.q, in.k, in.v});
        all.insert(all.begin(), output);
        return all;
      };
      const auto expected =
          outcome(attention_steps(reference.q, reference.k, reference.v).output, reference);
      const auto libtorch = outcome(libtorch_attention(theirs), theirs);
      for (const Path& path : paths()) {
        const Inputs in = rounded.requires_grad();
        const auto ours = outcome(path.output(in, {}), in);
        for (size_t i = 0; i < ours.size(); ++i) {
          const auto error = [&](const at::Tensor& t) {
            return (t.to(at::kDouble) - expected[i]).abs().max().item<double>();
          };
          INFO(path.name << ' ' << dtype << ", Tq " << s.Tq << ", Tk " << s.Tk << ", d_k " << s.d_k
                         << ", result " << i);
          CHECK(error(ours[i]) <= 2 * error(libtorch[i]) + 1e-6);
        }
      }
    }
  }
}

TEST_CASE("attention leaves the number of threads as it is", "[attention]") {
  const Threads three(3);
  const Inputs in = random_inputs({4, 4}, 64, 64, 32, 32).requires_grad();
  for (const Path& path : paths()) {
    path.output(in, {}).sum().backward();
    CHECK(at::get_num_threads() == 3);
  }
}

TEST_CASE("attention on the meta device gives shapes", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  const Inputs meta{in.q.to(at::kMeta), in.k.to(at::kMeta), in.v.to(at::kMeta)};
  for (const Path& path : paths()) {
    CHECK(path.output(meta, {.causal = Causal::kLowerRight}).sizes() ==
          at::IntArrayRef({2, 3, 4, 6}));
  }
}

TEST_CASE("attention says which path a call takes", "[attention]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  const AttentionPath path = attention_path(in.q, in.k, in.v, {.dropout = 0.5, .training = true});
  CHECK_FALSE(path.fused);
  CHECK_FALSE(path.reason.empty());
}
