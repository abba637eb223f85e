// SPDX-License-Identifier: MIT
#include "mini/data_parallel.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "mini/gpt.h"
#include "support/error_of.h"
#include "support/parallel_region.h"
#include "support/support.h"
#include "support/threads.h"

using mini::data_parallel_backward;
using mini::test::AllClose;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::in_parallel_region;
using mini::test::Threads;

namespace {

/// A GPT and five sequences for it.
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

/// The parts that a call makes, in order, with the thread and the number of threads of each.
struct Seen {
  int64_t begin, end;
  std::thread::id thread;
  int threads;
};

std::vector<Seen> parts_of(int64_t batch_size, std::optional<int64_t> parts) {
  const at::Tensor weight = torch::ones({}).requires_grad_(true);
  std::mutex mutex;
  std::vector<Seen> seen;
  const auto loss = [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    seen.push_back({begin, end, std::this_thread::get_id(), at::get_num_threads()});
    return weight * static_cast<double>(end - begin);
  };
  data_parallel_backward({weight}, batch_size, loss, parts);
  std::sort(seen.begin(), seen.end(),
            [](const Seen& a, const Seen& b) { return a.begin < b.begin; });
  return seen;
}

}  // namespace

TEST_CASE("data_parallel_backward gives the loss and the gradients of the whole batch",
          "[data_parallel]") {
  GPTBatch whole;
  const at::Tensor loss = whole.loss(0, 5);
  loss.backward();
  for (const int64_t parts : {1, 2, 3, 5, 9}) {  // nine: one for each sequence
    INFO(parts << " parts");
    GPTBatch in_parts;
    const at::Tensor sum = in_parts.backward(parts);
    CHECK_THAT(sum, AllClose(loss[0], 1e-6, 0));
    CHECK_FALSE(sum.requires_grad());
    CHECK(sum.dim() == 0);
    in_parts.check_gradients(whole.model);
    in_parts.backward(parts);  // added, as backward() does
    in_parts.check_gradients(whole.model, 2.0);
  }
}

TEST_CASE("the bits of data_parallel_backward depend on the parts and not on the threads",
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

TEST_CASE("data_parallel_backward gives each thread a part, in which it is alone",
          "[data_parallel]") {
  const Threads three(3);
  const auto parts = parts_of(8, std::nullopt);
  REQUIRE(parts.size() == 3);
  CHECK((parts[0].begin == 0 && parts[0].end == 3));
  CHECK((parts[1].begin == 3 && parts[1].end == 6));
  CHECK((parts[2].begin == 6 && parts[2].end == 8));
  CHECK(parts[0].thread != parts[1].thread);
  CHECK(parts[1].thread != parts[2].thread);
  CHECK(parts[2].thread != parts[0].thread);
  for (const Seen& part : parts) CHECK(part.threads == 1);
  CHECK(at::get_num_threads() == 3);

  CHECK(parts_of(2, std::nullopt).size() == 2);  // no part without a sequence
  const auto one = parts_of(8, 1);
  REQUIRE(one.size() == 1);
  CHECK((one[0].begin == 0 && one[0].end == 8 && one[0].threads == 3));
}

TEST_CASE("data_parallel_backward leaves other threads their number of threads",
          "[data_parallel]") {
  const Threads five(5);
  const at::Tensor weight = torch::ones({2}).requires_grad_(true);
  const auto of_a_new_thread = [] {
    int number = 0;
    std::thread([&] { number = at::get_num_threads(); }).join();
    return number;
  };
  int meanwhile = 0;
  data_parallel_backward({weight}, 5, [&](int64_t begin, int64_t) {
    if (begin == 0) meanwhile = of_a_new_thread();
    return weight.sum();
  });
  CHECK(meanwhile == 5);
  CHECK(of_a_new_thread() == 5);
}

TEST_CASE("data_parallel_backward may be called inside a parallel region and by itself",
          "[data_parallel]") {
  const Threads three(3);
  std::atomic<int> right = 0;
  in_parallel_region(3, [&](int64_t) {
    const at::AutoGradMode grad(true);
    const at::Tensor outer = torch::ones({2}).requires_grad_(true);
    const at::Tensor inner = torch::ones({2}).requires_grad_(true);
    const int threads = at::get_num_threads();
    data_parallel_backward(
        {outer}, 4,
        [&](int64_t, int64_t) {
          data_parallel_backward(
              {inner}, 2, [&](int64_t, int64_t) { return inner.sum(); }, 2);
          return outer.sum();
        },
        2);
    const bool as_before = at::in_parallel_region() && at::get_num_threads() == threads;
    if (as_before && at::equal(outer.grad(), torch::full({2}, 2.0)) &&
        at::equal(inner.grad(), torch::full({2}, 4.0))) {
      ++right;
    }
  });
  CHECK(right == 3);
}

TEST_CASE("data_parallel_backward leaves a batch whole where parts would take much memory",
          "[data_parallel]") {
  const Threads four(4);
  const auto parts = [](int64_t batch_size, int64_t mebibytes) {
    const at::Tensor small = torch::ones({}).requires_grad_(true);
    const at::Tensor large =
        at::empty({(mebibytes << 20) / 2}, at::kBFloat16).requires_grad_(true);  // never touched
    std::atomic<int> count = 0;
    data_parallel_backward({small, large}, batch_size, [&](int64_t, int64_t) {
      ++count;
      return small * 1.0;
    });
    return count.load();
  };
  CHECK(parts(4, 127) == 4);
  CHECK(parts(4, 129) == 1);
  CHECK(parts(2, 129) == 2);
  CHECK(parts(2, 257) == 1);
}

TEST_CASE("data_parallel_backward takes grad mode and autocast to its threads", "[data_parallel]") {
  const Threads two(2);
  const at::Tensor weight = torch::ones({4, 4}).requires_grad_(true);
  std::vector<at::ScalarType> dtypes(2);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  data_parallel_backward({weight}, 2, [&](int64_t begin, int64_t) {
    const at::Tensor product = torch::ones({4, 4}).mm(weight);
    dtypes[static_cast<size_t>(begin)] = product.scalar_type();
    return product.sum();
  });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(dtypes == std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16});

  const at::NoGradGuard no_grad;
  std::vector<int> modes(2, -1);
  data_parallel_backward({weight}, 2, [&](int64_t begin, int64_t) {
    modes[static_cast<size_t>(begin)] = at::GradMode::is_enabled();
    const at::AutoGradMode grad(true);
    return weight.sum();
  });
  CHECK(modes == std::vector<int>{0, 0});
}

TEST_CASE("data_parallel_backward touches the given parameters that need gradients, each once",
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

TEST_CASE("gradients that share memory within a part are added apart", "[data_parallel]") {
  const at::Tensor a = torch::zeros({2}).requires_grad_(true);
  const at::Tensor b = torch::zeros({2}).requires_grad_(true);
  const auto loss = [&](int64_t, int64_t) { return ((a + b) * torch::ones({2})).sum(); };
  data_parallel_backward({a, b}, 2, loss, 2);
  data_parallel_backward({a}, 2, loss, 2);
  CHECK_THAT(a.grad(), Equals(torch::full({2}, 4.0)));
  CHECK_THAT(b.grad(), Equals(torch::full({2}, 2.0)));
}

TEST_CASE("hooks on a parameter run once for each part, and may throw", "[data_parallel]") {
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

TEST_CASE("an error in one part comes out of data_parallel_backward, and no gradient changes",
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

TEST_CASE("data_parallel_backward refuses what it cannot cut or derive", "[data_parallel]") {
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
             ContainsSubstring("expected parameters that need gradients, got 0"));
  CHECK_THAT(error({weight.detach()}, 4, sum, std::nullopt), ContainsSubstring("got 1, none"));
  for (const int64_t parts : {1, 2}) {
    CHECK_THAT(error(
                   {weight}, 4, [&](int64_t, int64_t) { return weight * 1.0; }, parts),
               ContainsSubstring("expected a loss of one number that needs a gradient, got shape "
                                 "[2, 3]"));
    const at::NoGradGuard no_grad;
    CHECK_THAT(error({weight}, 4, sum, parts), ContainsSubstring("got shape [] without gradient"));
  }
  CHECK_FALSE(weight.grad().defined());
}
