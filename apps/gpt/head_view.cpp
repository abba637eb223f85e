// SPDX-License-Identifier: MIT
#include "gpt/head_view.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <future>

#include "mini/attention.h"
#include "mini/diagnostics.h"

namespace mini::app {
namespace {

constexpr int64_t kQueries = 128;  // per call of attention

double sum_of(const at::Tensor& numbers) { return numbers.sum(at::kDouble).item<double>(); }

// weights (queries, keys)
template <typename Number>
void add_rows(detail::LargestInBins& bins, const at::Tensor& weights) {
  const int64_t keys = weights.size(1);
  const Number* row = weights.const_data_ptr<Number>();
  for (int64_t i = 0; i < weights.size(0); ++i, row += keys) {
    bins.add_row(row, keys);
  }
}

// Sum over the queries of the entropy of even weights on all visible keys.
double even_entropy(int64_t T, bool causal) {
  double total = 0;
  for (int64_t i = 0; i < T; ++i) {
    total += std::log(static_cast<double>(causal ? i + 1 : T));
  }
  return total;
}

HeadView empty_view(int64_t T, int64_t values_each) {
  return {{}, detail::LargestInBins(T, T, values_each, values_each)};
}

// q, k (T, hs)
HeadView view_of_head(const at::Tensor& q, const at::Tensor& k, double scale, bool causal,
                      int64_t values_each) {
  const int64_t T = q.size(0);
  HeadView view = empty_view(T, values_each);
  HeadFigures total;
  for (int64_t first = 0; first < T; first += kQueries) {
    const int64_t end = std::min(first + kQueries, T);
    const int64_t keys = causal ? end : T;  // later keys are hidden from all these queries
    // The distance from the last of these queries back to each key. With these distances as values,
    // the output of attention is the mean distance from the last query.
    const at::Tensor distances =
        at::arange(end - 1, end - 1 - keys, -1, q.options()).unsqueeze(1);  // (keys, 1)
    const AttentionSteps steps =
        attention_steps(q.slice(0, first, end), k.slice(0, 0, keys), distances,
                        {.scale = scale, .causal = causal ? Causal::kLowerRight : Causal::kNone});
    total.entropy += sum_of(weight_entropy(steps.weights));
    total.peak += sum_of(peak_weight(steps.weights));
    total.distance += sum_of(steps.output.squeeze(1) - distances.slice(0, first, end).squeeze(1));
    const at::Tensor weights = steps.weights.contiguous();  // (queries, keys)
    if (weights.scalar_type() == at::kDouble) {
      add_rows<double>(view.weights, weights);
    } else {
      add_rows<float>(view.weights, weights);
    }
  }
  const auto queries = static_cast<double>(T);
  const double even = even_entropy(T, causal);
  view.figures = {.entropy = total.entropy / queries,
                  .entropy_share = even > 0 ? total.entropy / even : 0,
                  .peak = total.peak / queries,
                  .distance = total.distance / queries};
  return view;
}

// Calls work(i) for each i < count, on LibTorch's number of threads.
void for_each_on_threads(int64_t count, const std::function<void(int64_t)>& work) {
  const int threads = at::get_num_threads();
  std::atomic<int64_t> next = 0;
  std::vector<std::future<void>> workers;
  for (int t = 0; t < threads; ++t) {
    workers.push_back(std::async(std::launch::async, [&] {
      at::set_num_threads(1);  // for this thread only
      for (int64_t i = next++; i < count; i = next++) {
        work(i);
      }
    }));
  }
  for (std::future<void>& worker : workers) {
    worker.get();
  }
  at::set_num_threads(threads);
}

}  // namespace

// The operations on a few queries are too short to run in parallel. Instead each thread computes
// whole heads.
std::vector<HeadComparison> compare_heads(const at::Tensor& q, const at::Tensor& k, double scale,
                                          bool causal, int64_t values_each) {
  const HeadView empty = empty_view(q.size(1), values_each);
  std::vector<HeadComparison> heads(static_cast<size_t>(q.size(0)), HeadComparison{empty, empty});
  for_each_on_threads(2 * q.size(0), [&](int64_t i) {
    const int64_t head = i / 2;
    const bool scaled = i % 2 == 1;
    HeadComparison& comparison = heads[static_cast<size_t>(head)];
    (scaled ? comparison.scaled : comparison.unscaled) =
        view_of_head(q[head], k[head], scaled ? scale : 1.0, causal, values_each);
  });
  return heads;
}

}  // namespace mini::app
