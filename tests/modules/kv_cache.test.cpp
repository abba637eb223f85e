// SPDX-License-Identifier: MIT
#include "mini/kv_cache.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "support/support.h"

using mini::KvCache;
using mini::test::ContainsSubstring;
using mini::test::Equals;

TEST_CASE("a cache holds keys and values in the order they came", "[kv_cache]") {
  const at::Tensor k = at::randn({2, 3, 8, 5}), v = at::randn({2, 3, 8, 5});
  KvCache cache(8);
  CHECK(cache.capacity() == 8);
  CHECK(cache.length() == 0);
  CHECK_FALSE(cache.keys().defined());
  int64_t length = 0;
  for (const int64_t added : {3, 1, 0, 4}) {
    cache.append(k.narrow(2, length, added), v.narrow(2, length, added));
    length += added;
    CHECK(cache.length() == length);
    CHECK_THAT(cache.keys(), Equals(k.narrow(2, 0, length)));
    CHECK_THAT(cache.values(), Equals(v.narrow(2, 0, length)));
  }
  SECTION("in memory of its own, taken once") {
    const void* memory = cache.keys().data_ptr();
    k.zero_();
    CHECK(cache.keys().abs().min().item<double>() > 0);
    cache.clear();
    CHECK(cache.length() == 0);
    CHECK(cache.keys().sizes() == at::IntArrayRef({2, 3, 0, 5}));
    cache.append(v, k);
    CHECK(cache.keys().data_ptr() == memory);
    CHECK_THAT(cache.keys(), Equals(v));
  }
  SECTION("cleared, it takes other sizes and dtypes") {
    cache.clear();
    const at::Tensor other = at::randn({1, 3, 2, 5}, at::kDouble);
    cache.append(other, other);
    CHECK_THAT(cache.values(), Equals(other));
    CHECK(cache.values().scalar_type() == at::kDouble);
  }
}

TEST_CASE("a cache moves and is not copied", "[kv_cache]") {
  CHECK_FALSE(std::is_copy_constructible_v<KvCache>);  // a copy would share its memory
  const at::Tensor k = at::randn({1, 1, 2, 3});
  std::vector<KvCache> caches;
  caches.emplace_back(4).append(k, k);
  for (int i = 0; i < 8; ++i) caches.emplace_back(4);
  CHECK_THAT(caches.front().keys(), Equals(k));
}

TEST_CASE("a cache refuses what does not fit, and is unchanged then", "[kv_cache]") {
  CHECK_THROWS_WITH(KvCache(0), ContainsSubstring("KvCache: expected a capacity above 0, got 0"));
  KvCache cache(4);
  const at::Tensor k = at::randn({2, 3, 3, 5});
  cache.append(k, k);
  const auto refused = [&](const at::Tensor& keys, const at::Tensor& values, const char* message) {
    CHECK_THROWS_WITH(cache.append(keys, values), ContainsSubstring(message));
    CHECK(cache.length() == 3);
    CHECK_THAT(cache.keys(), Equals(k));
  };
  const auto zeros = [](std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
    return at::zeros(sizes, dtype);
  };
  const at::Tensor one = zeros({2, 3, 1, 5});
  refused(zeros({2, 3, 2, 5}), zeros({2, 3, 2, 5}),
          "KvCache::append: expected at most 1 more positions (capacity 4, length 3), got 2");
  refused(one, zeros({2, 3, 1, 4}),
          "got k Float [2, 3, 1, 5] on cpu and v Float [2, 3, 1, 4] on cpu");
  refused(one, zeros({2, 3, 1, 5}, at::kDouble), "of one shape, dtype and device");
  refused(zeros({3, 1, 5}), zeros({3, 1, 5}), "expected k and v (B, nh, T, hs)");
  for (const at::Tensor& other : {zeros({1, 3, 1, 5}), zeros({2, 2, 1, 5}), zeros({2, 3, 1, 6}),
                                  zeros({2, 3, 1, 5}, at::kDouble)}) {
    refused(other, other, "expected k and v like those before, Float [2, 3, 3, 5] on cpu, got ");
  }
  refused(one, at::Tensor(), "got an undefined v");
  refused(at::Tensor(), one, "got an undefined k");
  refused(one, zeros({2, 3, 1, 5}).requires_grad_(), "that need no gradient");
}

TEST_CASE("a cache takes what needs no gradient now", "[kv_cache]") {
  const at::Tensor k = at::randn({1, 1, 2, 3}).requires_grad_();
  KvCache cache(2);
  {
    const at::NoGradGuard no_grad;
    cache.append(k, k);
  }
  CHECK_FALSE(cache.keys().requires_grad());
}
