// SPDX-License-Identifier: MIT
// The results and errors of data_parallel_backward.
#include "mini/data_parallel.h"

#include <stdexcept>
#include <vector>

#include "mini/gpt.h"
#include "support/error_of.h"
#include "support/support.h"
#include "support/threads.h"

using mini::data_parallel_backward;
using mini::test::AllClose;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::Threads;

namespace {

/// A GPT and a batch of five sequences.
struct GPTBatch {
  mini::GPT model{mini::GPTOptions(11).block_size(8).n_layer(2).n_head(2).n_embd(12).seed(3)};
  at::Tensor idx = torch::arange(40).remainder(11).view({5, 8});
  at::Tensor targets = torch::arange(40).mul(7).remainder(11).view({5, 8});

  at::Tensor loss(int64_t begin, int64_t end) {
    const at::Tensor part = model->loss(idx.slice(0, begin, end), targets.slice(0, begin, end));
    return part.view({1}) * (static_cast<double>(end - begin) / 5);
  }
  at::Tensor backward(std::optional<int64_t> parts = std::nullopt) {
    return data_parallel_backward(
        model->parameters(), 5, [&](int64_t begin, int64_t end) { return loss(begin, end); },
        parts);
  }
  void check_gradients(const mini::GPT& expected, double factor = 1.0) const {
    const auto named = model->named_parameters();
    for (const auto& item : expected->named_parameters()) {
      INFO(item.key());
      CHECK_THAT(named[item.key()].grad(), AllClose(factor * item.value().grad(), 1e-5, 1e-7));
    }
  }
};

}  // namespace

TEST_CASE("data_parallel_backward computes the loss and the gradients of the whole batch",
          "[data_parallel]") {
  GPTBatch whole;
  const at::Tensor loss = whole.loss(0, 5);
  loss.backward();
  for (const int64_t parts : {1, 2, 3, 5, 9}) {  // 9 is more than the sequences
    INFO(parts << " parts");
    GPTBatch in_parts;
    const at::Tensor sum = in_parts.backward(parts);
    CHECK_THAT(sum, AllClose(loss[0], 1e-6, 0));
    CHECK_FALSE(sum.requires_grad());
    CHECK(sum.dim() == 0);
    in_parts.check_gradients(whole.model);
    in_parts.backward(parts);  // accumulates, as backward() does
    in_parts.check_gradients(whole.model, 2.0);
  }
}

TEST_CASE("the bits of data_parallel_backward do not depend on the number of threads",
          "[data_parallel]") {
  const Threads one(1);
  GPTBatch expected;
  expected.backward(3);
  for (int turn = 0; turn < 20; ++turn) {
    const Threads several(2 + turn % 3);
    GPTBatch actual;
    actual.backward(3);
    const auto parameters = actual.model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      CHECK_THAT(parameters[i].grad(), Equals(expected.model->parameters()[i].grad()));
    }
  }
}

TEST_CASE("data_parallel_backward changes only listed parameters that require a gradient",
          "[data_parallel]") {
  const at::Tensor a = torch::full({3}, 2.0).requires_grad_(true);
  const at::Tensor b = torch::full({3}, 5.0).requires_grad_(true);
  const at::Tensor unreached = torch::ones({3}).requires_grad_(true);
  const at::Tensor frozen = torch::ones({3});
  for (const int64_t parts : {1, 2}) {
    INFO(parts << " parts");
    const auto loss = [&](int64_t begin, int64_t end) {
      return (a * b * frozen).sum() * static_cast<double>(end - begin);
    };
    a.mutable_grad() = at::Tensor();
    data_parallel_backward({a, frozen, unreached, a}, 2, loss, parts);
    CHECK_THAT(a.grad(), Equals(torch::full({3}, 10.0)));
    CHECK_FALSE(b.grad().defined());
    CHECK_FALSE(unreached.grad().defined());
    CHECK_FALSE(frozen.grad().defined());
    data_parallel_backward({unreached}, 2, loss, parts);
    CHECK_FALSE(unreached.grad().defined());
  }
}

TEST_CASE("data_parallel_backward separates gradients that share memory", "[data_parallel]") {
  const at::Tensor a = torch::zeros({2}).requires_grad_(true);
  const at::Tensor b = torch::zeros({2}).requires_grad_(true);
  const auto loss = [&](int64_t, int64_t) { return ((a + b) * torch::ones({2})).sum(); };
  data_parallel_backward({a, b}, 2, loss, 2);
  data_parallel_backward({a}, 2, loss, 2);
  CHECK_THAT(a.grad(), Equals(torch::full({2}, 4.0)));
  CHECK_THAT(b.grad(), Equals(torch::full({2}, 2.0)));
}

TEST_CASE("data_parallel_backward runs hooks once per part and passes on their errors",
          "[data_parallel]") {
  const at::Tensor a = torch::ones({3}).requires_grad_(true);
  const at::Tensor b = torch::ones({3}).requires_grad_(true);
  bool fails = false;
  a.register_hook([&](const at::Tensor& gradient) {
    if (fails) throw std::runtime_error("this hook fails");
    return gradient * 0.5;
  });
  for (const int64_t parts : {1, 2}) {
    INFO(parts << " parts");
    a.mutable_grad() = b.mutable_grad() = at::Tensor();
    const auto loss = [&](int64_t begin, int64_t end) {
      return (b.sum() + a.exp().log().sum()) * static_cast<double>(end - begin);
    };
    fails = false;
    data_parallel_backward({a, b}, 2, loss, parts);
    CHECK_THAT(a.grad(), AllClose(torch::full({3}, 1.0), 1e-6, 0));
    fails = true;
    CHECK_THROWS_WITH(data_parallel_backward({a, b}, 2, loss, parts), "this hook fails");
    CHECK_THAT(b.grad(), Equals(torch::full({3}, 2.0)));
  }
}

TEST_CASE("data_parallel_backward passes on an error of one part and changes no gradient",
          "[data_parallel]") {
  const Threads two(2);
  const at::Tensor weight = torch::ones({2}).requires_grad_(true);
  for (const int64_t bad : {0, 1}) {
    INFO("part " << bad);
    const auto loss = [&](int64_t begin, int64_t) {
      if (begin == bad) throw std::runtime_error("this part fails");
      return weight.sum();
    };
    CHECK_THROWS_WITH(data_parallel_backward({weight}, 2, loss, 2), "this part fails");
    CHECK_FALSE(weight.grad().defined());
    CHECK(at::get_num_threads() == 2);
  }
}

TEST_CASE("data_parallel_backward refuses invalid sizes, parameters and losses",
          "[data_parallel]") {
  const at::Tensor weight = torch::ones({2, 3}).requires_grad_(true);
  const auto sum = [&](int64_t, int64_t) { return weight.sum(); };
  const auto error = [&](std::vector<at::Tensor> parameters, int64_t batch_size, auto loss,
                         std::optional<int64_t> parts) {
    return error_of([&] { data_parallel_backward(parameters, batch_size, loss, parts); });
  };
  CHECK_THAT(error({weight}, 0, sum, std::nullopt),
             ContainsSubstring("data_parallel_backward: expected batch_size and parts above 0, got "
                               "batch_size 0"));
  CHECK_THAT(error({weight}, 4, sum, 0), ContainsSubstring("batch_size 4 and parts 0"));
  CHECK_THAT(error({weight}, 4, sum, -1), ContainsSubstring("parts -1"));
  CHECK_THAT(error({}, 4, sum, std::nullopt),
             ContainsSubstring("expected a parameter that requires a gradient, got 0 that do not"));
  CHECK_THAT(error({weight.detach()}, 4, sum, std::nullopt),
             ContainsSubstring("got 1 that do not"));
  for (const int64_t parts : {1, 2}) {
    CHECK_THAT(
        error(
            {weight}, 4, [&](int64_t, int64_t) { return weight * 1.0; }, parts),
        ContainsSubstring("expected a loss of one element that requires a gradient, got shape "
                          "[2, 3]"));
    const at::NoGradGuard no_grad;
    CHECK_THAT(error({weight}, 4, sum, parts),
               ContainsSubstring("got shape [] without requires_grad"));
  }
  CHECK_FALSE(weight.grad().defined());
}
