// SPDX-License-Identifier: MIT
#include "mini/kv_cache.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "support/support.h"

using mini::KvCache;
using mini::test::ContainsSubstring;
using mini::test::Equals;

TEST_CASE("KvCache stores keys and values in the order of the calls", "[kv_cache]") {
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
  SECTION("in its own memory, which clear() keeps") {
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
  SECTION("after clear() it accepts other sizes and dtypes") {
    cache.clear();
    const at::Tensor other = at::randn({1, 3, 2, 5}, at::kDouble);
    cache.append(other, other);
    CHECK_THAT(cache.values(), Equals(other));
    CHECK(cache.values().scalar_type() == at::kDouble);
  }
}

TEST_CASE("KvCache::truncate removes the last positions", "[kv_cache]") {
  const at::Tensor k = at::randn({2, 3, 4, 5});
  KvCache cache(4);
  cache.append(k, k);
  cache.truncate(1);
  CHECK_THAT(cache.keys(), Equals(k.narrow(2, 0, 1)));
  CHECK_THROWS_WITH(cache.truncate(2),
                    ContainsSubstring("KvCache::truncate: expected a length from 0 to 1, got 2"));
  CHECK_THROWS_WITH(cache.truncate(-1), ContainsSubstring("got -1"));
  CHECK(cache.length() == 1);
}

TEST_CASE("KvCache can be moved but not copied", "[kv_cache]") {
  CHECK_FALSE(std::is_copy_constructible_v<KvCache>);  // a copy would share its memory
  const at::Tensor k = at::randn({1, 1, 2, 3});
  std::vector<KvCache> caches;
  caches.emplace_back(4).append(k, k);
  for (int i = 0; i < 8; ++i) caches.emplace_back(4);
  CHECK_THAT(caches.front().keys(), Equals(k));
}

TEST_CASE("KvCache rejects invalid tensors and is then unchanged", "[kv_cache]") {
  CHECK_THROWS_WITH(KvCache(0), ContainsSubstring("KvCache: expected a capacity above 0, got 0"));
  KvCache cache(4);
  const at::Tensor k = at::randn({2, 3, 3, 5});
  cache.append(k, k);
  const auto rejects = [&](const at::Tensor& keys, const at::Tensor& values, const char* message) {
    CHECK_THROWS_WITH(cache.append(keys, values), ContainsSubstring(message));
    CHECK(cache.length() == 3);
    CHECK_THAT(cache.keys(), Equals(k));
  };
  const auto zeros = [](std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
    return at::zeros(sizes, dtype);
  };
  const at::Tensor one = zeros({2, 3, 1, 5});
  rejects(zeros({2, 3, 2, 5}), zeros({2, 3, 2, 5}),
          "KvCache::append: expected at most 1 more positions (capacity 4, length 3), got 2");
  rejects(one, zeros({2, 3, 1, 4}),
          "got k Float [2, 3, 1, 5] on cpu and v Float [2, 3, 1, 4] on cpu");
  rejects(one, zeros({2, 3, 1, 5}, at::kDouble), "of equal shape, dtype and device");
  rejects(zeros({3, 1, 5}), zeros({3, 1, 5}), "expected k and v (B, nh, T, hs)");
  for (const at::Tensor& other : {zeros({1, 3, 1, 5}), zeros({2, 2, 1, 5}), zeros({2, 3, 1, 6}),
                                  zeros({2, 3, 1, 5}, at::kDouble)}) {
    rejects(
        other, other,
        "expected k and v to match the cached keys in all but T, Float [2, 3, 3, 5] on cpu, got ");
  }
  rejects(one, at::Tensor(), "got an undefined v");
  rejects(at::Tensor(), one, "got an undefined k");
  rejects(one, zeros({2, 3, 1, 5}).requires_grad_(), "that require no gradients");
}

TEST_CASE("KvCache accepts tensors that require gradients under a NoGradGuard", "[kv_cache]") {
  const at::Tensor k = at::randn({1, 1, 2, 3}).requires_grad_();
  KvCache cache(2);
  {
    const at::NoGradGuard no_grad;
    cache.append(k, k);
  }
  CHECK_FALSE(cache.keys().requires_grad());
}
