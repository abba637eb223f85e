// SPDX-License-Identifier: MIT
// Memory that the fused path allocates.
#include <c10/core/CPUAllocator.h>

#include <atomic>

#include "support/attention_support.h"
#include "support/threads.h"

using namespace mini;
using namespace mini::test;

namespace {

// Counts the calls and bytes of LibTorch's CPU allocator while the object exists.
class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 1); }
  ~CountingAllocator() override { c10::SetCPUAllocator(before_, 1); }
  c10::DataPtr allocate(size_t n) override {
    ++calls;
    bytes += static_cast<int64_t>(n);
    return before_->allocate(n);
  }
  c10::DeleterFnPtr raw_deleter() const override { return before_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t n) const override {
    before_->copy_data(to, from, n);
  }

  std::atomic<int64_t> calls = 0, bytes = 0;

 private:
  c10::Allocator* before_;
};

// Bytes that a forward and backward call allocates, including its results.
int64_t bytes_of_training_call(int64_t T, Causal causal = Causal::kUpperLeft) {
  const Inputs in = random_inputs({1, 1}, T, T, 32, 32).requires_grad();
  const at::Tensor upstream = at::ones({}).expand({1, 1, T, 32});
  CountingAllocator counting;
  const at::Tensor output = attention(in, {.causal = causal});
  gradients(output, upstream, {in.q, in.k, in.v});
  return counting.bytes.load();
}

}  // namespace

TEST_CASE("a small call allocates only its output", "[fused]") {
  for (const auto& [Tq, Tk] : {std::pair<int64_t, int64_t>{4, 4}, {1, 1000}}) {
    const Inputs in = random_inputs({1, 1}, Tq, Tk, 32, 32);
    CountingAllocator counting;
    attention(in);
    CHECK(counting.calls == 1);
  }
}

TEST_CASE("memory grows linearly with the length", "[fused]") {
  const Threads threads(2);
  const int64_t of_4096 = bytes_of_training_call(4096), of_8192 = bytes_of_training_call(8192);
  CHECK(10 * of_8192 < 22 * of_4096);
  CHECK(of_8192 < 16 << 20);
}

TEST_CASE("a mask that repeats a row is converted without writing the repetitions", "[fused]") {
  constexpr int64_t T = 1024;
  const Inputs in = random_inputs({1, 1}, T, T, 32, 32);
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    const at::Tensor repeated = at::randn({T}).to(dtype).expand({T, T});
    const at::Tensor expected = attention(in, {.mask = repeated.contiguous()});
    const CountingAllocator counting;
    const at::Tensor output = attention(in, {.mask = repeated});
    CHECK(counting.bytes < T * T);  // a quarter of the mask in float32
    CHECK_THAT(output, Equals(expected));
  }
}

TEST_CASE("gradients of many query heads that share a key head need little memory", "[fused]") {
  const Inputs in{at::randn({1, 32, 512, 8}).requires_grad_(),
                  at::randn({1, 1, 4096, 8}).requires_grad_(),
                  at::randn({1, 1, 4096, 8}).requires_grad_()};
  const at::Tensor output = attention(in, {.grouped_queries = true});
  const at::Tensor upstream = at::ones_like(output);
  const CountingAllocator counting;
  gradients(output, upstream, {in.q, in.k, in.v});
  CHECK(counting.bytes < 6 * in.q.numel() * 4);
}

// Each part of the keys has a dq of its own.
TEST_CASE("32,768 tokens need less than 64 MiB beyond the inputs", "[fused][.slow]") {
  const Threads threads(2);
  for (const Causal causal : {Causal::kNone, Causal::kUpperLeft}) {
    CHECK(bytes_of_training_call(32768, causal) < 64 << 20);
  }
}
