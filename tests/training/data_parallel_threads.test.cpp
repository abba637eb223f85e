// SPDX-License-Identifier: MIT
// How data_parallel_backward splits a batch into parts and runs the parts on threads.
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "mini/data_parallel.h"
#include "support/parallel_region.h"
#include "support/support.h"
#include "support/threads.h"

using mini::data_parallel_backward;
using mini::test::in_parallel_region;
using mini::test::Threads;

namespace {

/// One call of the loss: its rows, its thread, and the number of threads of LibTorch in the call.
struct Seen {
  int64_t begin, end;
  std::thread::id thread;
  int threads;
};

/// The calls of the loss that one call of data_parallel_backward makes, by rows.
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

TEST_CASE("data_parallel_backward runs one part on each thread by default", "[data_parallel]") {
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

  CHECK(parts_of(2, std::nullopt).size() == 2);  // no part is empty
  const auto one = parts_of(8, 1);
  REQUIRE(one.size() == 1);
  CHECK((one[0].begin == 0 && one[0].end == 8 && one[0].threads == 3));
}

TEST_CASE("data_parallel_backward does not change the number of threads of other threads",
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

TEST_CASE("data_parallel_backward can be called in a parallel region and in its own loss",
          "[data_parallel]") {
  const Threads three(3);
  std::atomic<int> correct = 0;
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
      ++correct;
    }
  });
  CHECK(correct == 3);
}

TEST_CASE("data_parallel_backward runs one part if the gradients would exceed 512 MiB",
          "[data_parallel]") {
  const Threads four(4);
  const auto parts = [](int64_t batch_size, int64_t mebibytes) {
    const at::Tensor small = torch::ones({}).requires_grad_(true);
    // Not touched, so it takes no memory.
    const at::Tensor large = at::empty({(mebibytes << 20) / 2}, at::kBFloat16).requires_grad_(true);
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

TEST_CASE("data_parallel_backward passes grad mode and autocast to its threads",
          "[data_parallel]") {
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
