// SPDX-License-Identifier: MIT
#include "mini/diagnostics.h"

#include <cmath>

#include "support/support.h"

using namespace mini;
using namespace mini::test;

namespace {

const at::Tensor& weights() {
  static const at::Tensor rows = torch::tensor({{{0.25, 0.25, 0.25, 0.25}, {1.0, 0.0, 0.0, 0.0}},
                                                {{0.5, 0.5, 0.0, 0.0}, {0.0, 0.0, 0.0, 0.0}}},
                                               at::kDouble);
  return rows;
}

}  // namespace

TEST_CASE("weight_entropy is 0 for one key and ln T for equal weights", "[diagnostics]") {
  CHECK_THAT(weight_entropy(weights()),
             AllClose(torch::tensor({{std::log(4.0), 0.0}, {std::log(2.0), 0.0}}), 0, 1e-7));
  CHECK_THAT(normalized_weight_entropy(weights()),
             AllClose(torch::tensor({{1.0, 0.0}, {0.5, 0.0}}), 0, 1e-7));
  CHECK_THAT(normalized_weight_entropy(at::ones({3, 1})), Equals(at::zeros({3})));
}

TEST_CASE("peak_weight is the largest weight of a row", "[diagnostics]") {
  CHECK_THAT(peak_weight(weights()), Equals(torch::tensor({{0.25, 1.0}, {0.5, 0.0}})));
}

TEST_CASE("score_spread is the standard deviation of a row of scores", "[diagnostics]") {
  CHECK_THAT(score_spread(torch::tensor({{1.0, 2.0, 3.0}, {10.0, 20.0, 30.0}, {5.0, 5.0, 5.0}})),
             AllClose(torch::tensor({1.0, 10.0, 0.0}), 0, 1e-6));
  CHECK_THAT(score_spread(at::full({2, 1}, 7.0)), Equals(at::zeros({2})));
  torch::manual_seed(0);
  const at::Tensor q = at::randn({2000, 1, 64}), k = at::randn({2000, 8, 64});
  const double measured = score_spread(at::matmul(q, k.transpose(1, 2)).flatten()).item<double>();
  CHECK(std::abs(measured / 8.0 - 1) < 0.03);  // sqrt(64)
}

TEST_CASE("softmax_slope is the diagonal of the softmax's Jacobian", "[diagnostics]") {
  const at::Tensor z = torch::tensor({0.3, -1.0, 2.0}, at::kDouble).requires_grad_();
  const at::Tensor w = at::softmax(z, -1);
  for (int64_t j = 0; j < 3; ++j) {
    const at::Tensor row = torch::autograd::grad({w[j]}, {z}, {}, /*retain_graph=*/true)[0];
    CHECK(std::abs((softmax_slope(w)[j] - row[j]).item<double>()) < 1e-12);
  }
  CHECK_THAT(softmax_slope(weights())[1][0], Equals(torch::tensor({0.25, 0.25, 0.0, 0.0})));
}

TEST_CASE("diagnostics keep the dtype and reject arguments that are not a batch of rows",
          "[diagnostics]") {
  const at::Tensor half = at::full({2, 4}, 0.25, at::kBFloat16);
  for (const auto& measure :
       {weight_entropy, normalized_weight_entropy, peak_weight, score_spread}) {
    CHECK(measure(half).scalar_type() == at::kBFloat16);
    CHECK(measure(half).sizes() == at::IntArrayRef({2}));
    CHECK_THROWS_WITH(
        measure(at::ones({2, 4}, at::kLong)),
        ContainsSubstring(": expected rows (..., T) of a floating dtype, got Long [2, 4]"));
    CHECK_THROWS_WITH(measure(at::scalar_tensor(1.0)), ContainsSubstring("got Float []"));
    CHECK_THROWS_WITH(measure(at::Tensor()), ContainsSubstring("got undefined"));
  }
  CHECK(softmax_slope(half).sizes() == half.sizes());
  CHECK_THROWS_WITH(softmax_slope(at::Tensor()), ContainsSubstring("softmax_slope: expected rows"));
  CHECK_THROWS_WITH(peak_weight(at::zeros({2, 0})),
                    ContainsSubstring("at least one weight, got [2, 0]"));
}
