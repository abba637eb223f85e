// SPDX-License-Identifier: MIT
// The arguments that attention rejects, and its messages.
#include <cmath>
#include <limits>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

namespace {

at::Tensor f32(std::vector<int64_t> shape) { return at::zeros(shape); }

struct Refusal {
  at::Tensor q, k, v;
  AttentionOptions options;
  std::string message;
};

}  // namespace

TEST_CASE("attention rejects invalid arguments and names them", "[attention_checks]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor a = f32({2, 4, 8});
  const at::Tensor q4 = f32({2, 3, 4, 8});
  const auto with = [&](AttentionOptions options, std::string message) {
    return Refusal{a, a, a, std::move(options), std::move(message)};
  };
  const std::vector<Refusal> refusals = {
      // kind
      {at::Tensor(), a, a, {}, "expected three tensors, got an undefined q"},
      {a, at::Tensor(), a, {}, "expected three tensors, got an undefined k"},
      {a, a, at::Tensor(), {}, "expected three tensors, got an undefined v"},
      {a.to_sparse(), a, a, {}, "expected dense tensors, got layouts q Sparse"},
      {a, a.to_sparse(), a, {}, "got layouts q Strided, k Sparse"},
      {a, a, a.to_sparse(), {}, "got layouts q Strided, k Strided, v Sparse"},
      {a.to(at::kLong),
       a.to(at::kLong),
       a.to(at::kLong),
       {},
       "expected float32, float64, bfloat16 or float16, got Long"},
      {a.to(at::kComplexFloat),
       a.to(at::kComplexFloat),
       a.to(at::kComplexFloat),
       {},
       "expected float32, float64, bfloat16 or float16, got ComplexFloat"},
      {a, a.to(at::kDouble), a, {}, "must share a dtype, got q Float, k Double, v Float"},
      {a, a, a.to(at::kBFloat16), {}, "must share a dtype, got q Float, k Float, v BFloat16"},
      {a, a.to(at::kMeta), a, {}, "must be on one device, got q cpu, k meta, v cpu"},
      {a, a, a.to(at::kMeta), {}, "must be on one device, got q cpu, k cpu, v meta"},
      // shapes
      {f32({8}), f32({8}), f32({8}), {}, "at least 2, got q [8], k [8], v [8]"},
      {a, q4, q4, {}, "the same number of dimensions, at least 2, got q [2, 4, 8], k [2, 3, 4, 8]"},
      {a, q4, a, {}, "got q [2, 4, 8], k [2, 3, 4, 8], v [2, 4, 8]"},
      {a, a, q4, {}, "got q [2, 4, 8], k [2, 4, 8], v [2, 3, 4, 8]"},
      {a, f32({2, 4, 6}), a, {}, "must share head_size d_k, got q [2, 4, 8] and k [2, 4, 6]"},
      {a, a, f32({2, 5, 8}), {}, "must share their length Tk, got k [2, 4, 8] and v [2, 5, 8]"},
      {a, a, f32({1, 4, 8}), {}, "k and v must share their leading dimensions, got k [2, 4, 8]"},
      {f32({1, 4, 8}),
       f32({4, 4, 8}),
       f32({4, 4, 8}),
       {},
       "q and k must share their leading dimensions (they are not broadcast), got q [1, 4, 8] and "
       "k [4, 4, 8]"},
      {f32({4, 8}),
       f32({4, 8}),
       f32({4, 8}),
       {.grouped_queries = true},
       "grouped queries need a dimension of heads"},
      {f32({2, 5, 4, 8}),
       f32({2, 2, 4, 8}),
       f32({2, 2, 4, 8}),
       {.grouped_queries = true},
       "the heads of q must be a multiple of those of k and v, got 5 and 2"},
      {f32({2, 5, 4, 8}),
       f32({2, 0, 4, 8}),
       f32({2, 0, 4, 8}),
       {.grouped_queries = true},
       "the heads of q must be a multiple of those of k and v, got 5 and 0"},
      {f32({3, 4, 4, 8}),
       f32({2, 2, 4, 8}),
       f32({2, 2, 4, 8}),
       {.grouped_queries = true},
       "must share the dimensions before the heads, got q [3, 4, 4, 8] and k [2, 2, 4, 8]"},
      // mask
      with({.mask = at::Tensor()}, "expected a mask, got an undefined tensor"),
      with({.mask = at::ones({4, 4}, at::kLong)}, "expected a mask of bool"),
      with({.mask = at::ones({4, 4}, at::kLong)}, "got Long"),
      with({.mask = at::ones({4, 4}).to_sparse()}, "expected a dense mask, got layout Sparse"),
      with({.mask = at::ones({4, 4}, at::kMeta)}, "the mask must be on the device of q, got meta"),
      with({.mask = at::ones({3, 4})}, "broadcasts to the scores [2, 4, 4], got [3, 4]"),
      with({.mask = at::ones({4, 5})}, "broadcasts to the scores [2, 4, 4], got [4, 5]"),
      with({.mask = at::ones({3, 4, 4})}, "broadcasts to the scores [2, 4, 4], got [3, 4, 4]"),
      with({.mask = at::ones({1, 2, 4, 4})},
           "or as many as the scores [2, 4, 4], got [1, 2, 4, 4]"),
      // The mask could be per batch or per head.
      {q4,
       q4,
       q4,
       {.mask = at::ones({3, 4, 4})},
       "or as many as the scores [2, 3, 4, 4], got [3, 4, 4]; insert a dimension of size 1 where "
       "the mask is broadcast"},
      // numbers
      with({.scale = nan}, "expected a finite scale, got nan"),
      with({.scale = inf}, "expected a finite scale, got inf"),
      with({.dropout = -0.1}, "expected a dropout probability in [0, 1], got -0.1"),
      with({.dropout = 1.1}, "expected a dropout probability in [0, 1], got 1.1"),
      with({.dropout = nan}, "expected a dropout probability in [0, 1], got nan"),
      {f32({2, 4, 0}),
       f32({2, 4, 0}),
       a,
       {},
       "is undefined for d_k = 0; pass a scale, got q [2, 4, 0]"},
  };
  for (const Refusal& r : refusals) {
    INFO(r.message);
    CHECK_THROWS_WITH(
        mini::scaled_dot_product_attention(r.q, r.k, r.v, r.options),
        ContainsSubstring("scaled_dot_product_attention: ") && ContainsSubstring(r.message));
    CHECK_THROWS_WITH(attention_steps(r.q, r.k, r.v, r.options),
                      ContainsSubstring("attention_steps: ") && ContainsSubstring(r.message));
    CHECK_THROWS_WITH(attention_path(r.q, r.k, r.v, r.options),
                      ContainsSubstring("attention_path: ") && ContainsSubstring(r.message));
    CHECK_THROWS_AS(mini::scaled_dot_product_attention(r.q, r.k, r.v, r.options), c10::Error);
  }
}

TEST_CASE("zero query heads and zero key/value heads give an empty output", "[attention_checks]") {
  const at::Tensor none = f32({2, 0, 4, 8});
  CHECK(mini::scaled_dot_product_attention(none, none, none, {.grouped_queries = true}).sizes() ==
        at::IntArrayRef({2, 0, 4, 8}));
}
