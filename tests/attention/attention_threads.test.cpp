// SPDX-License-Identifier: MIT
// Attention on several threads.
#include <ATen/Parallel.h>

#include <atomic>
#include <thread>

#include "support/attention_support.h"
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
