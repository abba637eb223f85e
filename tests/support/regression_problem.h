// SPDX-License-Identifier: MIT
// A small regression problem, for tests of optimizers.
#pragma once

#include "support/support.h"

namespace mini::test {

/// A model with matrices, vectors and a bias of one element. Equal seeds give equal weights.
inline torch::nn::Sequential regression_model(uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(7, 33),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({33})),
                               torch::nn::GELU(), torch::nn::Linear(33, 1));
}

/// The loss on the batch of `step`, which depends only on `step`.
inline at::Tensor regression_loss(torch::nn::Sequential& net, int step) {
  torch::manual_seed(1000 + step);
  const at::Tensor x = torch::randn({16, 7});
  return torch::mse_loss(net->forward(x), x.sum(1, true).sin());
}

/// Makes the steps [from, to) and returns the loss of the last one.
template <typename Optimizer>
double train(torch::nn::Sequential& net, Optimizer& optimizer, int from, int to) {
  double last = 0.0;
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = regression_loss(net, step);
    loss.backward();
    optimizer.step();
    last = loss.template item<double>();
  }
  return last;
}

inline void check_parameters(const torch::nn::Module& actual, const torch::nn::Module& expected,
                             double rtol, double atol) {
  const auto parameters = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    INFO(item.key());
    CHECK_THAT(parameters[item.key()], AllClose(item.value(), rtol, atol));
  }
}

}  // namespace mini::test
