// SPDX-License-Identifier: MIT
// Times the fused attention against LibTorch's attention and the composite formula, and against the
// peak throughput of the processor. All results are verified before the first measurement.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "attention_cases.h"
#include "bench_options.h"
#include "common/app.h"
#include "common/keep_memory.h"
#include "kernels/attention_kernel.h"
#include "kernels/targets.h"
#include "measure.h"

namespace mini::app {
namespace {

struct Options : BenchOptions {
  std::string target;
  double seconds = 0.5;
};

// Operations per second of one core that computes only multiply-adds.
double multiply_add_peak() {
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    double operations = 0.0;
    const double seconds = seconds_of([&] { operations = kernels::multiply_adds(200000); }, 1);
    rates.push_back(operations / seconds);
  }
  return quantile(rates, 1.0);
}

// Operations per second of LibTorch's matrix product on one core.
double matrix_product_rate() {
  const at::Tensor a = at::randn({1024, 1024}), b = at::randn({1024, 1024});
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    rates.push_back(2.0 * 1024 * 1024 * 1024 / seconds_of([&] { at::matmul(a, b); }, 1));
  }
  return quantile(rates, 1.0);
}

struct Row {
  Shape shape;
  bool backward;
  int threads;
  std::string peer;
  double ours_s, peer_s;  // medians
  double spread;          // of ours, relative to the median
  double ratio;           // peer / ours, the median of the pairs of measurements
  double rate;            // operations per second of ours
  double peak_share;      // fraction of peak throughput

  const char* pass() const { return backward ? "forward_backward" : "forward"; }
};

std::vector<Row> measure(const Options& options, const Shape& shape, bool backward, int threads) {
  torch::manual_seed(0);
  const auto draw = [&](int64_t rows) {
    return at::randn({shape.batch, shape.heads, rows, shape.head_size}).requires_grad_(backward);
  };
  const Tensors qkv{draw(shape.tq), draw(shape.tk), draw(shape.tk)};
  const at::Tensor upstream = backward ? draw(shape.tq).detach() : at::Tensor();
  const Implementation own = ours(shape);
  const std::vector<Implementation> peers = peers_of(shape);

  verify(own, shape, qkv, upstream);
  for (const Implementation& peer : peers) verify(peer, shape, qkv, upstream);

  std::vector<Row> rows;
  for (const Implementation& peer : peers) {
    const auto run_ours = [&] { call(own.attention, qkv, upstream); };
    const auto run_peer = [&] { call(peer.attention, qkv, upstream); };
    // A measurement repeats a short call for about 1 ms, far above the resolution of the clock.
    const int64_t repeats =
        std::max<int64_t>(1, static_cast<int64_t>(1e-3 / seconds_of(run_ours, 1)));
    std::vector<double> own_s, peer_s, ratios;
    for (double spent = 0.0; spent < options.seconds || own_s.size() < 10;) {
      own_s.push_back(seconds_of(run_ours, repeats));
      peer_s.push_back(seconds_of(run_peer, repeats));
      ratios.push_back(peer_s.back() / own_s.back());
      spent += static_cast<double>(repeats) * (own_s.back() + peer_s.back());
    }
    const double median = quantile(own_s, 0.5);
    const double rate = shape.operations() * (backward ? 3.5 : 1.0) / median;
    rows.push_back({shape, backward, threads, peer.name, median, quantile(peer_s, 0.5),
                    relative_spread(own_s), quantile(ratios, 0.5), rate,
                    rate / (threads * multiply_add_peak())});
  }
  return rows;
}

struct Results {
  std::string cpu = cpu_name();
  std::string target = kernels::target_name();
  double peak = multiply_add_peak();
  double matrix_product = matrix_product_rate();
  std::vector<Row> rows;
};

double geometric_mean(const Results& results, bool backward) {
  double sum = 0.0;
  int64_t n = 0;
  for (const Row& row : results.rows) {
    if (row.peer == "sdpa_4d" && row.backward == backward) {
      sum += std::log(row.ratio);
      ++n;
    }
  }
  return n == 0 ? 0.0 : std::exp(sum / static_cast<double>(n));
}

std::string to_text(const Options& options, const Results& results) {
  std::string text = fmt::format(
      "{}, {}: peak {:.1f} GFLOP/s per core, LibTorch's matrix product {:.1f}\n"
      "allocator: {}\n\n",
      results.cpu, results.target, results.peak * 1e-9, results.matrix_product * 1e-9,
      options.default_malloc ? "default settings"
                             : "keeps freed memory in the process, for both sides");
  text += fmt::format("{:<24} {:>16} {:>7} {:>10} {:>11} {:>6} {:>11} {:>6} {:>8} {:>5}\n",
                      "batch,heads,TqxTk,hs", "pass", "threads", "peer", "ours us", "+-", "peer us",
                      "ratio", "GFLOP/s", "peak");
  for (const Row& row : results.rows) {
    text += fmt::format(
        "{:<24} {:>16} {:>7} {:>10} {:>11.1f} {:>5.1f}% {:>11.1f} {:>6.2f} {:>8.1f} {:>4.0f}%\n",
        row.shape.name(), row.pass(), row.threads, row.peer, row.ours_s * 1e6, row.spread * 100,
        row.peer_s * 1e6, row.ratio, row.rate * 1e-9, row.peak_share * 100);
  }
  text += fmt::format(
      "\nOurs and each peer were measured alternately.\n"
      "+-: half the distance between the quartiles of our times, relative to the median.\n"
      "ratio: the peer's time / ours, median of the pairs. peak: fraction of peak throughput.\n"
      "Geometric mean of the ratios to sdpa_4d: forward {:.2f}, forward and backward {:.2f}.\n",
      geometric_mean(results, false), geometric_mean(results, true));
  return text;
}

Json to_json(const Results& results) {
  Json rows = Json::array();
  for (const Row& row : results.rows) {
    rows.push_back({{"batch", row.shape.batch},
                    {"heads", row.shape.heads},
                    {"tq", row.shape.tq},
                    {"tk", row.shape.tk},
                    {"head_size", row.shape.head_size},
                    {"causal", row.shape.causal},
                    {"pass", row.pass()},
                    {"threads", row.threads},
                    {"peer", row.peer},
                    {"ours_us", row.ours_s * 1e6},
                    {"peer_us", row.peer_s * 1e6},
                    {"spread", row.spread},
                    {"ratio", row.ratio},
                    {"gflops", row.rate * 1e-9},
                    {"peak_share", row.peak_share}});
  }
  return {{"cpu", results.cpu},
          {"target", results.target},
          {"peak_gflops", results.peak * 1e-9},
          {"matrix_product_gflops", results.matrix_product * 1e-9},
          {"rows", rows}};
}

Table to_table(const Results& results) {
  Table table{{"batch", "heads", "tq", "tk", "head_size", "causal", "pass", "threads", "peer",
               "ours_us", "peer_us", "ratio", "peak_share"},
              {}};
  for (const Row& row : results.rows) {
    table.rows.push_back({row.shape.batch, row.shape.heads, row.shape.tq, row.shape.tk,
                          row.shape.head_size, row.shape.causal, row.pass(), row.threads, row.peer,
                          row.ours_s * 1e6, row.peer_s * 1e6, row.ratio, row.peak_share});
  }
  return table;
}

void choose_target(const std::string& name) {
  if (kernels::set_target(name)) return;
  throw UsageError(fmt::format("--target: expected one of {}, got '{}'",
                               fmt::join(kernels::supported_targets(), ", "), name));
}

Results run(const Options& options) {
  if (!options.default_malloc) {
    keep_freed_memory();  // otherwise page faults dominate the time
  }
  if (const char* error = kernels::target_error()) throw UsageError(error);
  choose_target(options.target);
  at::set_num_threads(1);
  Results results;
  for (const Shape& shape : kShapes) {
    if (!options.selects(shape.name())) continue;
    for (const int threads : options.threads) {
      at::set_num_threads(threads);
      for (const bool backward : {false, true}) {
        fmt::print(stderr, "{} {} {} thread(s)\n", shape.name(),
                   backward ? "forward_backward" : "forward", threads);
        for (Row& row : measure(options, shape, backward, threads)) {
          results.rows.push_back(std::move(row));
        }
      }
    }
  }
  if (results.rows.empty()) {
    throw UsageError(fmt::format(
        "--filter: expected a part of a shape, such as '64,causal', got '{}'", options.filter));
  }
  return results;
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("bench_attention",
          "Times the fused attention against LibTorch's attention and the composite formula. "
          "Verifies all results first.");
  add_bench_options(app, options, "shapes");
  app.add_option("--target", options.target,
                 "Instruction set, such as AVX2; by default MINI_SIMD_TARGET or the best");
  app.add_option("--seconds", options.seconds, "Shortest time to measure each pair, in seconds")
      ->check(finite_number())
      ->capture_default_str();
  return app.run(argc, argv, [&] {
    const Results results = run(options);
    return Report{to_text(options, results), to_json(results), to_table(results)};
  });
}
