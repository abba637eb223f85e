// SPDX-License-Identifier: MIT
// The fused path as a whole: which calls take it, strides, threads, memory, and the operator.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <thread>

#include "attention_support.h"

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

class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

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

TEST_CASE("the bits of results and gradients do not depend on the number of threads", "[fused]") {
  struct Row {
    int64_t batch, heads, Tq, Tk, hs;
  };
  for (const Row& row : {Row{1, 1, 4, 4, 32},
                         {32, 4, 64, 64, 32},
                         {3, 5, 77, 77, 40},
                         {2, 12, 256, 256, 64},
                         {1, 3, 1024, 1024, 64},
                         {1, 1, 2100, 2100, 64},
                         {1, 2, 1024, 1024, 128},
                         {1, 12, 1, 1024, 64},
                         {1, 1, 1, 4096, 64}}) {
    const Inputs in = random_inputs({row.batch, row.heads}, row.Tq, row.Tk, row.hs, row.hs);
    for (const Causal causal : {Causal::kNone, Causal::kUpperLeft}) {
      INFO("T " << row.Tq << ", heads " << row.batch * row.heads);
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
  at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) call();
  });
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
  const auto bytes = [](int64_t T) {
    const Inputs in = random_inputs({1, 1}, T, T, 32, 32).requires_grad();
    CountingAllocator counting;
    const at::Tensor output = attention(in, {.causal = Causal::kUpperLeft});
    gradients(output, at::ones_like(output), {in.q, in.k, in.v});
    return counting.bytes.load();
  };
  const int64_t of_4096 = bytes(4096), of_8192 = bytes(8192);
  CHECK(10 * of_8192 < 22 * of_4096);
  CHECK(of_8192 < 32 << 20);
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
