// SPDX-License-Identifier: MIT
// The fused path as a whole: which calls take it, strides, threads, memory, and the operator.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <atomic>
#include <thread>

#include "support/attention_support.h"
#include "support/parallel_region.h"
#include "support/threads.h"

using namespace mini;
using namespace mini::test;

namespace {

at::Tensor attention(const Inputs& in, const AttentionOptions& options = {}) {
  return mini::scaled_dot_product_attention(in.q, in.k, in.v, options);
}

// Output and gradients, as one vector of numbers.
at::Tensor all_results(const Inputs& inputs, const AttentionOptions& options) {
  const Inputs in = inputs.requires_grad();
  const at::Tensor output = attention(in, options);
  const at::Tensor upstream = at::ones_like(output).cumsum(-1);
  std::vector<at::Tensor> flat{output.detach().flatten()};
  for (const at::Tensor& gradient : gradients(output, upstream, {in.q, in.k, in.v})) {
    flat.push_back(gradient.flatten());
  }
  return at::cat(flat);
}

// Counts what is asked of LibTorch's allocator while it lives.
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

// What a call forward and backward takes from LibTorch's allocator, its results included.
int64_t bytes_of_training_call(int64_t T) {
  const Inputs in = random_inputs({1, 1}, T, T, 32, 32).requires_grad();
  CountingAllocator counting;
  const at::Tensor output = attention(in, {.causal = Causal::kUpperLeft});
  gradients(output, at::ones_like(output), {in.q, in.k, in.v});
  return counting.bytes.load();
}

}  // namespace

TEST_CASE("attention takes the fused path for every shape and mask of the contract", "[fused]") {
  for (const std::vector<int64_t>& leading :
       {std::vector<int64_t>{}, {3}, {2, 3}, {2, 1, 3}, {0, 3}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Inputs in = random_inputs(leading, 5, 7, 300, 6, dtype);
      CHECK(attention_path(in.q, in.k, in.v).fused);
      CHECK(attention_path(in.q, in.k, in.v).reason.empty());
      CHECK(attention_path(in.q, in.k, in.v, {.mask = at::ones({5, 7}, at::kBool)}).fused);
      CHECK(attention_path(in.q, in.k, in.v, {.mask = at::ones({5, 7}, at::kDouble)}).fused);
    }
  }
}

TEST_CASE("attention says what rules the fused path out", "[fused]") {
  const Inputs in = random_inputs({2, 3}, 4, 5, 8, 6);
  const auto reason = [](const Inputs& i, const AttentionOptions& options = {}) {
    const AttentionPath path = attention_path(i.q, i.k, i.v, options);
    CHECK_FALSE(path.fused);
    return path.reason;
  };
  CHECK_THAT(reason(in.to(at::kDouble)), ContainsSubstring("float32"));
  CHECK_THAT(reason(in, {.dropout = 0.5, .training = true}), ContainsSubstring("dropout"));
  CHECK(attention_path(in.q, in.k, in.v, {.dropout = 0.5}).fused);
  CHECK_THAT(reason(in, {.mask = at::zeros({4, 5}).requires_grad_()}), ContainsSubstring("mask"));
  CHECK_THAT(reason({in.q.to(at::kMeta), in.k.to(at::kMeta), in.v.to(at::kMeta)}),
             ContainsSubstring("CPU"));
}

TEST_CASE("heads of one packed projection are read where they are", "[fused]") {
  torch::manual_seed(2);
  for (const int64_t hs : {32, 40, 64, 128}) {
    const at::Tensor packed = at::randn({2, 70, 3, 4, hs}).permute({2, 0, 3, 1, 4});
    const Inputs views{packed[0], packed[1], packed[2]};
    const Inputs copies{views.q.contiguous(), views.k.contiguous(), views.v.contiguous()};
    CHECK_THAT(all_results(views, {.causal = Causal::kUpperLeft}),
               Equals(all_results(copies, {.causal = Causal::kUpperLeft})));
    const at::Tensor output = attention(views);
    CHECK(output.transpose(1, 2).is_contiguous());  // joining the heads again copies nothing
  }
}

TEST_CASE("strided, transposed and expanded inputs and upstream gradients are right", "[fused]") {
  const Inputs in = random_inputs({2, 3}, 33, 20, 16, 16);
  const Inputs strided{at::stack({in.q, in.q}, -1).select(-1, 0),
                       in.k.transpose(-1, -2).contiguous().transpose(-1, -2),
                       at::stack({in.v, in.v}, 1).select(1, 1)};
  CHECK_THAT(attention(strided), Equals(attention(in)));

  const Inputs one = random_inputs({1, 1}, 1, 20, 16, 16);
  const Inputs expanded{one.q.expand({2, 3, 33, 16}), one.k.expand({2, 3, 20, 16}),
                        one.v.expand({2, 3, 20, 16})};
  const Inputs copies{expanded.q.contiguous(), expanded.k.contiguous(), expanded.v.contiguous()};
  CHECK_THAT(attention(expanded), Equals(attention(copies)));

  const Inputs leaves = in.requires_grad();
  const at::Tensor output = attention(leaves);
  const at::Tensor stride_0 = at::ones({}).expand_as(output);
  const auto expected = gradients(output, stride_0.contiguous(), {leaves.q, leaves.k, leaves.v});
  const auto actual = gradients(output, stride_0, {leaves.q, leaves.k, leaves.v});
  for (size_t i = 0; i < 3; ++i) CHECK_THAT(actual[i], Equals(expected[i]));
}

TEST_CASE("grouped queries have the gradients of repeated heads", "[fused]") {
  for (const int64_t Tq : {1, 3, 70}) {
    const Inputs in = random_inputs({2, 6}, Tq, 50, 16, 8);
    const Inputs shared{in.q, in.k.slice(1, 0, 2), in.v.slice(1, 0, 2)};
    for (const Causal causal : {Causal::kNone, Causal::kLowerRight, Causal::kUpperLeft}) {
      const AttentionOptions options{.causal = causal, .grouped_queries = true};
      Inputs a = shared.requires_grad(), b = shared.requires_grad();
      const at::Tensor output = attention(a, options);
      const at::Tensor repeated = attention(
          {b.q, b.k.repeat_interleave(3, 1), b.v.repeat_interleave(3, 1)}, {.causal = causal});
      CHECK_THAT(output, Equals(repeated));
      const at::Tensor upstream = at::randn_like(output);
      const auto actual = gradients(output, upstream, {a.q, a.k, a.v});
      const auto expected = gradients(repeated, upstream, {b.q, b.k, b.v});
      for (size_t i = 0; i < 3; ++i) CHECK_THAT(actual[i], AllClose(expected[i], 1e-5, 1e-5));
    }
  }
}

TEST_CASE("keys without a query head have gradients of 0", "[fused]") {
  for (const int64_t Tq : {1, 70}) {
    const Inputs in{at::zeros({2, 0, Tq, 8}).requires_grad_(),
                    at::randn({2, 3, 50, 8}).requires_grad_(),
                    at::randn({2, 3, 50, 8}).requires_grad_()};
    const at::Tensor output = attention(in, {.grouped_queries = true});
    const auto actual = gradients(output, at::ones_like(output), {in.q, in.k, in.v});
    CHECK_THAT(actual[0], Equals(at::zeros_like(in.q)));
    CHECK_THAT(actual[1], Equals(at::zeros_like(in.k)));
    CHECK_THAT(actual[2], Equals(at::zeros_like(in.v)));
  }
}

TEST_CASE("many query heads that share a key head take little memory for their gradients",
          "[fused]") {
  const Inputs in{at::randn({1, 32, 512, 8}).requires_grad_(),
                  at::randn({1, 1, 4096, 8}).requires_grad_(),
                  at::randn({1, 1, 4096, 8}).requires_grad_()};
  const at::Tensor output = attention(in, {.grouped_queries = true});
  const at::Tensor upstream = at::ones_like(output);
  const CountingAllocator counting;
  gradients(output, upstream, {in.q, in.k, in.v});
  CHECK(counting.bytes < 6 * in.q.numel() * 4);
}

TEST_CASE("a visible NaN shows in all that its row touches, gradients too", "[fused]") {
  for (const int64_t Tq : {1, 70}) {
    const Inputs in = random_inputs({1}, Tq, 70, 24, 24);
    in.k[0][40].fill_(std::nanf(""));
    const Inputs leaves = in.requires_grad();
    const at::Tensor output = attention(leaves);
    CHECK(output.isnan().all().item<bool>());
    for (const at::Tensor& gradient :
         gradients(output, at::ones_like(output), {leaves.q, leaves.k, leaves.v})) {
      CHECK(gradient.isnan().all().item<bool>());
    }
  }
}

TEST_CASE("the largest finite mask entries hide nothing", "[fused]") {
  const Inputs in = random_inputs({1}, 20, 30, 8, 8);
  for (const float entry : {3.4e38F, -3.4e38F}) {
    const at::Tensor output = attention(in, {.mask = at::full({20, 30}, entry)});
    CHECK_THAT(output, AllClose(in.v.mean(1, true).expand({1, 20, 8}), 1e-5, 1e-5));
  }
}

TEST_CASE("a negated view is read with its sign", "[fused]") {
  const Inputs in = random_inputs({2, 3}, 33, 20, 16, 16);
  const at::Tensor bias = at::randn({33, 20});
  CHECK_THAT(attention({at::_neg_view(in.q), at::_neg_view(in.k), at::_neg_view(in.v)},
                       {.mask = at::_neg_view(bias)}),
             Equals(attention({-in.q, -in.k, -in.v}, {.mask = -bias})));
}

TEST_CASE("forward-mode derivatives come from the composite path", "[fused]") {
  const Inputs in = random_inputs({2}, 5, 6, 4, 4), tangent = random_inputs({2}, 5, 6, 4, 4);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const at::Tensor q = at::_make_dual(in.q, tangent.q.cos(), static_cast<int64_t>(level));
  CHECK_THAT(attention_path(q, in.k, in.v).reason, ContainsSubstring("forward-mode"));
  const at::Tensor output = attention({q, in.k, in.v});
  const auto [value, slope] = at::_unpack_dual(output, static_cast<int64_t>(level));
  const double step = 1e-3;
  const at::Tensor difference = (attention({in.q + step * tangent.q.cos(), in.k, in.v}) -
                                 attention({in.q - step * tangent.q.cos(), in.k, in.v})) /
                                (2 * step);
  CHECK_THAT(slope, AllClose(difference, 1e-2, 1e-3));
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST_CASE("the bits of results and gradients do not depend on the number of threads", "[fused]") {
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

TEST_CASE("the bits do not depend on the number of threads at the benchmark's shapes",
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

TEST_CASE("a small call allocates its output and nothing else", "[fused]") {
  for (const auto& [Tq, Tk] : {std::pair<int64_t, int64_t>{4, 4}, {1, 1000}}) {
    const Inputs in = random_inputs({1, 1}, Tq, Tk, 32, 32);
    CountingAllocator counting;
    attention(in);
    CHECK(counting.calls == 1);
  }
}

TEST_CASE("memory grows with the length, not with its square", "[fused]") {
  const Threads threads(2);
  const int64_t of_4096 = bytes_of_training_call(4096), of_8192 = bytes_of_training_call(8192);
  CHECK(10 * of_8192 < 22 * of_4096);
  CHECK(of_8192 < 32 << 20);
}

TEST_CASE("16,384 tokens take less than 64 MB beyond inputs and results", "[fused][.slow]") {
  const Threads threads(2);
  constexpr int64_t T = 16384, kResults = 5 * T * 32 * 4;  // output, ones, three gradients
  CHECK(bytes_of_training_call(T) - kResults < 64'000'000);
}

TEST_CASE("the operator is the function", "[fused]") {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("mini::scaled_dot_product_attention", "")
                      .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        const std::optional<at::Tensor>&, std::optional<double>,
                                        c10::string_view, bool)>();
  const Inputs in = random_inputs({2, 4}, 9, 12, 16, 8);
  const at::Tensor keep = at::rand({9, 12}) < 0.7;
  const Inputs shared{in.q, in.k.slice(1, 0, 2), in.v.slice(1, 0, 2)};
  CHECK_THAT(op.call(in.q, in.k, in.v, {}, {}, "none", false), Equals(attention(in)));
  CHECK_THAT(
      op.call(shared.q, shared.k, shared.v, keep, 0.5, "lower_right", true),
      Equals(attention(
          shared,
          {.mask = keep, .scale = 0.5, .causal = Causal::kLowerRight, .grouped_queries = true})));
  CHECK_THAT(op.call(in.q, in.k, in.v, {}, {}, "upper_left", false),
             Equals(attention(in, {.causal = Causal::kUpperLeft})));
  const Inputs f64 = in.to(at::kDouble);
  CHECK_THAT(op.call(f64.q, f64.k, f64.v, {}, {}, "none", false), Equals(attention(f64)));
  CHECK_THROWS_WITH(op.call(in.q, in.k, in.v, {}, {}, "sideways", false),
                    ContainsSubstring("sideways"));
  CHECK_THROWS_WITH(op.call(in.q, in.k.slice(2, 1), in.v, {}, {}, "none", false),
                    ContainsSubstring("Tk"));
}

TEST_CASE("gradients from the operator share no memory, though queries, keys and values do",
          "[fused]") {
  const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mini::_attention_backward", "")
          .typed<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
              const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
              const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
              std::optional<double>, int64_t, bool)>();
  const at::Tensor packed = at::randn({2, 5, 3, 4, 8}).permute({2, 0, 3, 1, 4});
  const at::Tensor output = attention({packed[0], packed[1], packed[2]});
  const auto [dq, dk, dv] = op.call(output, packed[0], packed[1], packed[2], output,
                                    at::zeros({2, 4, 2, 5}), {}, {}, 0, false);
  CHECK_FALSE(dq.is_alias_of(dk));
  CHECK_FALSE(dk.is_alias_of(dv));
}

TEST_CASE("second order gradients of the fused path are those of the composite one", "[fused]") {
  const Inputs base = random_inputs({2}, 5, 6, 4, 4);
  const auto second = [](const Path& path, const Inputs& inputs) {
    const Inputs in = inputs.requires_grad();
    const at::Tensor output = path.output(in, {.causal = Causal::kLowerRight});
    const auto first = gradients(output, output.detach().cos(), {in.q, in.k, in.v}, true);
    const at::Tensor loss =
        first[0].square().sum() + first[1].sin().sum() + first[2].square().sum();
    return gradients(loss, at::ones({}, loss.options()), {in.q, in.k, in.v});
  };
  const auto fused = second(paths()[0], base);
  const auto composite = second(paths()[1], base.to(at::kDouble));
  for (size_t i = 0; i < 3; ++i) CHECK_THAT(fused[i], AllClose(composite[i], 1e-4, 1e-5));
}

TEST_CASE("gradients are right beside scores and masks of any size", "[fused]") {
  for (const int64_t Tq : {3, 40}) {
    const Inputs base = random_inputs({2}, Tq, 7, 4, 4);
    for (const double added : {-3e38, -1e30, -2e4, 1e4}) {
      const AttentionOptions options{.mask = at::full({Tq, 7}, added)};
      const Inputs fused = base.requires_grad(), exact = base.requires_grad();
      const at::Tensor upstream = at::randn({2, Tq, 4});
      const auto actual =
          gradients(attention(fused, options), upstream, {fused.q, fused.k, fused.v});
      const auto expected = gradients(attention_steps(exact.q, exact.k, exact.v, options).output,
                                      upstream, {exact.q, exact.k, exact.v});
      for (size_t i = 0; i < 3; ++i) {
        INFO("mask " << added << ", Tq " << Tq << ", result " << i);
        CHECK_THAT(actual[i], AllClose(expected[i], 5e-3, 5e-3));
      }
    }
  }
}
