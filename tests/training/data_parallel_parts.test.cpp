// SPDX-License-Identifier: MIT
// The number of parts that data_parallel_backward chooses, and the parameters that they reach.
#include "mini/data_parallel.h"

#include <atomic>
#include <vector>

#include "support/support.h"
#include "support/threads.h"

using mini::test::Equals;
using mini::test::Threads;

TEST_CASE("data_parallel_backward uses one part if the gradients would exceed 512 MiB",
          "[data_parallel]") {
  const Threads two(2);
  const at::Tensor weight = torch::ones({2}).requires_grad_(true);
  const auto parts_with = [&](const std::vector<at::Tensor>& parameters) {
    std::atomic<int> parts = 0;
    mini::data_parallel_backward(parameters, 4, [&](int64_t, int64_t) {
      ++parts;
      return weight.sum();
    });
    return parts.load();
  };
  // No memory: a gradient is allocated only for parameters that the loss reaches.
  const auto megabytes = [](int64_t count) {
    return torch::zeros({1}).expand({count << 18}).requires_grad_(true);
  };
  CHECK(parts_with({weight}) == 2);
  CHECK(parts_with({weight, megabytes(255)}) == 2);
  CHECK(parts_with({weight, megabytes(256)}) == 1);
  CHECK(parts_with({weight, megabytes(1 << 20)}) == 1);
}

TEST_CASE("a parameter that the loss does not reach does not affect the gradients of others",
          "[data_parallel]") {
  for (const int64_t parts : {1, 2}) {
    INFO(parts << " parts");
    const at::Tensor unreached = torch::ones({3}).requires_grad_(true);
    const at::Tensor weight = torch::ones({2}).requires_grad_(true);
    const auto loss = [&](int64_t begin, int64_t end) {
      return weight.sum() * static_cast<double>(end - begin);
    };
    mini::data_parallel_backward({unreached, weight}, 2, loss, parts);
    CHECK_THAT(weight.grad(), Equals(torch::full({2}, 2.0)));
    CHECK_FALSE(unreached.grad().defined());
  }
}
