// SPDX-License-Identifier: MIT
#include "modules/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace mini::detail {
namespace {

// The ids of the k largest logits, largest first. Ties are sorted by id.
std::vector<int64_t> likeliest(std::span<const double> logits, int64_t k) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  std::partial_sort(ids.begin(), ids.begin() + k, ids.end(), [&](int64_t a, int64_t b) {
    const double of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  });
  ids.resize(static_cast<size_t>(k));
  return ids;
}

// The smallest number of leading weights whose sum is at least top_p times the total. The weights
// are sorted, the largest first.
size_t nucleus(std::span<const double> weights, double top_p) {
  const double enough = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0.0;
  size_t count = 0;
  do {
    sum += weights[count++];
  } while (count < weights.size() && sum < enough);
  return count;
}

// The first index whose cumulative sum exceeds `uniform` times the total. Its weight is above 0.
size_t index_at(std::span<const double> weights, double uniform) {
  const double target = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0.0;
  size_t index = 0;
  for (size_t i = 0; i < weights.size() && sum <= target; ++i) {
    if (weights[i] > 0.0) {
      index = i;  // the last one if rounding keeps the whole sum at the target
    }
    sum += weights[i];
  }
  return index;
}

}  // namespace

int64_t greedy_token(std::span<const double> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

int64_t sampled_token(std::span<const double> logits, const GenerateOptions& options,
                      double uniform) {
  const auto vocab_size = static_cast<int64_t>(logits.size());
  const bool filtered = options.top_k || options.top_p;
  std::vector<int64_t> ids;  // the token of weights[i] is ids[i], or i if ids is empty
  if (filtered) ids = likeliest(logits, std::min(options.top_k.value_or(vocab_size), vocab_size));

  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights(filtered ? ids.size() : logits.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const double logit = logits[filtered ? static_cast<size_t>(ids[i]) : i];
    weights[i] = std::exp((logit - largest) / options.temperature);
  }
  if (options.top_p && *options.top_p < 1.0) {  // 1 keeps all tokens, however the sum is rounded
    weights.resize(nucleus(weights, *options.top_p));
  }
  const size_t chosen = index_at(weights, uniform);
  return filtered ? ids[chosen] : static_cast<int64_t>(chosen);
}

}  // namespace mini::detail
