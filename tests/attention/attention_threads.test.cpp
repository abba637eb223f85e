// SPDX-License-Identifier: MIT
// Attention on several threads.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <random>
#include <thread>

#include "support/attention_support.h"
#include "support/files.h"
#include "support/parallel_region.h"
#include "support/threads.h"

using namespace mini;
using namespace mini::test;

namespace {

struct Shape {
  int64_t batch, heads, Tq, Tk, hs;
};

void check_bits_at_1_to_4_threads(const Shape& shape) {
  const Inputs in =
      random_inputs({shape.batch, shape.heads}, shape.Tq, shape.Tk, shape.hs, shape.hs);
  for (const Causal causal : {Causal::kNone, Causal::kUpperLeft}) {
    INFO("T " << shape.Tq << ", heads " << shape.batch * shape.heads);
    at::Tensor one;
    {
      const Threads threads(1);
      one = all_results(in, {.causal = causal});
    }
    for (const int n : {2, 3, 4}) {
      const Threads threads(n);
      CHECK(at::equal(all_results(in, {.causal = causal}), one));
    }
  }
}

}  // namespace

TEST_CASE("results and gradients have the same bits at any number of threads", "[fused]") {
  for (const Shape& shape : {Shape{1, 1, 4, 4, 32},
                             {32, 4, 64, 64, 32},
                             {3, 5, 77, 77, 40},
                             {2, 8, 130, 256, 64},
                             {1, 3, 200, 1024, 64},
                             {1, 1, 300, 2100, 64},
                             {1, 2, 200, 1024, 128},
                             {1, 12, 1, 1024, 64},
                             {1, 1, 1, 4096, 64}}) {
    check_bits_at_1_to_4_threads(shape);
  }
}

TEST_CASE(
    "results and gradients have the same bits at any number of threads at the benchmark's shapes",
    "[fused][.slow]") {
  for (const Shape& shape : {Shape{1, 1, 4, 4, 32},
                             {32, 4, 64, 64, 32},
                             {3, 5, 77, 77, 40},
                             {8, 12, 256, 256, 64},
                             {1, 12, 1024, 1024, 64},
                             {1, 1, 4096, 4096, 64},
                             {1, 16, 2048, 2048, 128},
                             {12, 12, 1024, 1024, 64},
                             {1, 12, 1, 64, 64},
                             {1, 12, 1, 1024, 64},
                             {1, 12, 1, 4096, 64}}) {
    check_bits_at_1_to_4_threads(shape);
  }
}

TEST_CASE("attention does not change the number of threads", "[attention]") {
  const Threads three(3);
  const Inputs in = random_inputs({4, 4}, 64, 64, 32, 32).requires_grad();
  for (const Path& path : paths()) {
    path.output(in, {}).sum().backward();
    CHECK(at::get_num_threads() == 3);
  }
}

TEST_CASE("attention may be called inside a parallel region and from several threads", "[fused]") {
  const Inputs in = random_inputs({2, 4}, 200, 200, 32, 32);
  const at::Tensor expected = all_results(in, {.causal = Causal::kUpperLeft});
  std::atomic<int> wrong = 0;
  const auto call = [&] {
    if (!at::equal(attention(in, {.causal = Causal::kUpperLeft}).flatten(),
                   expected.slice(0, 0, in.q.numel()))) {
      ++wrong;
    }
  };
  const Threads two(2);
  std::atomic<int> in_a_region = 0;
  in_parallel_region(8, [&](int64_t) {
    const at::NoGradGuard no_grad;
    in_a_region += at::in_parallel_region() ? 1 : 0;
    call();
  });
  CHECK(in_a_region == 8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) call();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("eight threads that call attention at once get the same bits at any number of threads",
          "[fused][.slow]") {
  const std::vector<Inputs> inputs = {random_inputs({2, 3}, 130, 256, 64, 64),
                                      random_inputs({1, 1}, 300, 700, 32, 40),
                                      random_inputs({8}, 1, 500, 64, 64)};
  std::vector<at::Tensor> expected;
  {
    const Threads one(1);
    for (const Inputs& in : inputs) expected.push_back(all_results(in, {}));
  }
  for (const int n : {1, 2, 3, 4, 8}) {
    INFO(n << " threads");
    const Threads of_each_call(n);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> callers;
    for (std::size_t caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&, caller] {
        for (std::size_t call = 0; call < 30; ++call) {
          const std::size_t i = (caller + call) % inputs.size();
          if (!at::equal(all_results(inputs[i], {}), expected[i])) ++wrong;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("10000 calls of random shapes do not increase the memory of the process",
          "[fused][.slow]") {
  std::mt19937 random(1);
  const auto from = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto call = [&] {
    const at::ScalarType dtype = std::array{at::kFloat, at::kBFloat16, at::kHalf}[random() % 3];
    const Inputs in = random_inputs({from(1, 2), from(1, 4)}, from(1, 100), from(1, 200),
                                    from(1, 80), from(1, 80), dtype, random());
    const AttentionOptions options{.causal = static_cast<Causal>(random() % 3)};
    if (random() % 2 == 0) {
      attention(in, options);
    } else {
      all_results(in, options);
    }
  };
  for (int i = 0; i < 2'000; ++i) call();
  // The allocator keeps more memory from time to time. A leak adds memory in every round.
  int64_t least_growth = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 4; ++round) {
    const int64_t before = private_memory();
    for (int i = 0; i < 2'500; ++i) call();
    least_growth = std::min(least_growth, private_memory() - before);
  }
  CHECK(least_growth < (int64_t{1} << 18));  // about 100 bytes a call
}
