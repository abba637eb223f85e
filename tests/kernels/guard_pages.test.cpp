// SPDX-License-Identifier: MIT
// Every tensor that a kernel reads or writes, and its scratch memory, borders on a page that must
// not be touched. An access outside ends the test with a segmentation fault.
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "modules/functional.h"
#include "support/attention_support.h"
#include "support/targets.h"
#include "support/threads.h"

using namespace mini;
using namespace mini::test;

namespace {

// While the object exists, LibTorch's CPU memory begins or ends at an inaccessible page.
class GuardedAllocator : public c10::Allocator {
 public:
  explicit GuardedAllocator(bool at_end) : at_end_(at_end), before_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, 1);
  }
  ~GuardedAllocator() override { c10::SetCPUAllocator(before_, 1); }

  c10::DataPtr allocate(size_t n) override {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t inside = (n + page - 1) / page * page;
    auto mapping = std::make_unique<Mapping>();
    mapping->size = inside + 2 * page;
    mapping->start = ::mmap(nullptr, mapping->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(mapping->start != MAP_FAILED, "mmap failed");
    char* const first = static_cast<char*>(mapping->start) + page;
    TORCH_CHECK(::mprotect(first, inside, PROT_READ | PROT_WRITE) == 0, "mprotect failed");
    return {at_end_ ? first + inside - n : first, mapping.release(), &unmap, at::kCPU};
  }
  void copy_data(void* to, const void* from, size_t n) const override {
    before_->copy_data(to, from, n);
  }

 private:
  struct Mapping {
    void* start;
    size_t size;
  };
  static void unmap(void* context) {
    const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
    ::munmap(mapping->start, mapping->size);
  }

  bool at_end_;
  c10::Allocator* before_;
};

// Runs `body` with memory that ends and with memory that begins at an inaccessible page, on every
// instruction set.
template <class Body>
void for_each_border(const Body& body) {
  const Threads one(1);
  for (const bool at_end : {true, false}) {
    const GuardedAllocator guarded(at_end);
    for_each_target(body);
  }
}

// (1, rows, width) with `gap` unused numbers between rows, and none after the last row.
at::Tensor draw(int64_t rows, int64_t width, int64_t gap) {
  const int64_t stride = width + gap;
  return at::randn({rows * stride - gap}).as_strided({1, rows, width}, {rows * stride, stride, 1});
}

struct Lengths {
  int64_t Tq, Tk, d_k, d_v;
};

// Decoding, block tails, two vectors and less, and several parts of the backward pass.
const std::vector<Lengths> kLengths = {
    {1, 1, 1, 1},     {1, 33, 40, 40},   {2, 300, 17, 5},   {3, 5000, 8, 16},  {4, 4, 32, 32},
    {5, 3, 3, 7},     {9, 7, 15, 31},    {17, 15, 48, 65},  {31, 33, 1, 130},  {33, 31, 127, 2},
    {64, 64, 32, 32}, {65, 63, 129, 16}, {257, 130, 8, 16}, {70, 600, 24, 40}, {6, 10, 300, 260}};

std::vector<std::optional<at::Tensor>> masks(const Lengths& size) {
  const at::Tensor keep = at::rand({size.Tq, size.Tk}) < 0.7;
  return {std::nullopt,
          keep,
          at::randn({size.Tq, size.Tk}),
          keep.select(0, 0).clone(),
          draw(size.Tq, size.Tk, 3).squeeze(0),
          at::randn({size.Tq, 1})};
}

}  // namespace

TEST_CASE("attention does not touch memory outside its tensors", "[kernel][guard]") {
  for_each_border([] {
    for (const Lengths& size : kLengths) {
      for (const int64_t gap : {0, 3}) {
        const at::Tensor q = draw(size.Tq, size.d_k, gap).requires_grad_(),
                         k = draw(size.Tk, size.d_k, gap).requires_grad_(),
                         v = draw(size.Tk, size.d_v, gap).requires_grad_();
        const at::Tensor upstream = draw(size.Tq, size.d_v, gap);
        for (const auto& mask : masks(size)) {
          for (const Causal causal : {Causal::kNone, Causal::kLowerRight}) {
            const at::Tensor output = attention({q, k, v}, {.mask = mask, .causal = causal});
            const auto found = gradients(output, upstream, {q, k, v});
            CHECK(found[0].sizes() == q.sizes());
          }
        }
      }
    }
  });
}

TEST_CASE("layer norm and GELU do not touch memory outside their tensors", "[kernel][guard]") {
  for_each_border([] {
    for (const int64_t width : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 1025}) {
      for (const int64_t rows : {1, 2, 70}) {
        const at::Tensor x = at::randn({rows, width}).requires_grad_(),
                         weight = at::randn({width}).requires_grad_(),
                         bias = at::randn({width}).requires_grad_();
        const at::Tensor upstream = at::randn({rows, width});
        const at::Tensor normed = mini::detail::layer_norm(x, weight, bias);
        CHECK(gradients(normed, upstream, {x, weight, bias}).size() == 3);
        const at::Tensor unbiased = mini::detail::layer_norm(x, weight, {});
        CHECK(gradients(unbiased, upstream, {x, weight}).size() == 2);
        CHECK(gradients(mini::detail::gelu(x, "none"), upstream, {x}).size() == 1);
      }
    }
  });
}
