// SPDX-License-Identifier: MIT
// The fused attention beside LibTorch's own and beside the formula: how much faster, and how near
// to what the processor can do? Results are compared with float64 before anything is timed.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/app.h"
#include "common/keep_memory.h"
#include "kernels/attention_kernel.h"
#include "measure.h"
#include "mini/attention.h"

namespace mini::app {
namespace {

struct Options {
  std::string filter;
  std::vector<int> threads = {1, 2};
  std::string target;
  double seconds = 0.5;
  bool default_malloc = false;
};

struct Shape {
  int64_t batch, heads, tq, tk, head_size;
  bool causal;

  std::string name() const {
    return fmt::format("{},{},{}x{},{}{}", batch, heads, tq, tk, head_size,
                       causal ? ",causal" : "");
  }
  /// Multiplications and additions of the products, forward, hidden positions left out.
  double operations() const {
    const double pairs = causal ? 0.5 * static_cast<double>(tq) * static_cast<double>(tk + 1)
                                : static_cast<double>(tq) * static_cast<double>(tk);
    return 4.0 * static_cast<double>(batch * heads * head_size) * pairs;
  }
};

const std::vector<Shape> kShapes = {
    {1, 1, 4, 4, 32, false},        {32, 4, 64, 64, 32, false},     {32, 4, 64, 64, 32, true},
    {3, 5, 77, 77, 40, false},      {3, 5, 77, 77, 40, true},       {8, 12, 256, 256, 64, false},
    {8, 12, 256, 256, 64, true},    {1, 12, 1024, 1024, 64, false}, {1, 12, 1024, 1024, 64, true},
    {1, 1, 4096, 4096, 64, false},  {1, 1, 4096, 4096, 64, true},   {1, 16, 2048, 2048, 128, false},
    {1, 16, 2048, 2048, 128, true}, {12, 12, 1024, 1024, 64, true}, {1, 12, 1, 64, 64, false},
    {1, 12, 1, 1024, 64, false},    {1, 12, 1, 4096, 64, false},
};

using Tensors = std::vector<at::Tensor>;
using Attention = std::function<at::Tensor(const Tensors& qkv)>;

struct Peer {
  std::string name;
  Attention attention;
};

mini::AttentionOptions options_of(const Shape& shape) {
  return {.causal = shape.causal ? mini::Causal::kUpperLeft : mini::Causal::kNone};
}

at::Tensor ours(const Shape& shape, const Tensors& qkv) {
  return mini::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], options_of(shape));
}

std::vector<Peer> peers_of(const Shape& shape) {
  const auto sdpa = [shape](const Tensors& qkv) {
    return at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, shape.causal);
  };
  std::vector<Peer> peers{{"sdpa_4d", sdpa}};
  if (shape.heads == 1) {
    // B×T×hs as it is; the conversion to four dimensions is not ours to do for the peer.
    peers.push_back(
        {"sdpa_3d", [sdpa](const Tensors& qkv) {
           return sdpa({qkv[0].squeeze(1), qkv[1].squeeze(1), qkv[2].squeeze(1)}).unsqueeze(1);
         }});
  }
  const double scores = static_cast<double>(shape.batch * shape.heads * shape.tq * shape.tk);
  if (scores < 2e7) {  // beyond, its T×T matrices are all that is measured
    peers.push_back(
        {"composite", [shape](const Tensors& qkv) {
           return mini::attention_steps(qkv[0], qkv[1], qkv[2], options_of(shape)).output;
         }});
  }
  return peers;
}

// One call: forward, or forward with backward through autograd.
Tensors call(const Attention& attention, const Tensors& qkv, const at::Tensor& upstream) {
  const at::Tensor output = attention(qkv);
  if (!upstream.defined()) {
    return {output};
  }
  Tensors results = torch::autograd::grad({output}, qkv, {upstream});
  results.push_back(output.detach());
  return results;
}

// Throws if a result is further from float64 than rounding explains. Heads are independent, so the
// first one stands for all.
void verify(const std::string& name, const Shape& shape, const Attention& attention,
            const Tensors& qkv, const at::Tensor& upstream) {
  const auto head = [](const at::Tensor& t) { return t.detach().slice(0, 0, 1).slice(1, 0, 1); };
  Tensors exact_inputs;
  for (const at::Tensor& t : qkv) {
    exact_inputs.push_back(head(t).to(at::kDouble).requires_grad_(upstream.defined()));
  }
  const Tensors exact = call(
      [&](const Tensors& in) {
        return mini::attention_steps(in[0], in[1], in[2], options_of(shape)).output;
      },
      exact_inputs, upstream.defined() ? head(upstream).to(at::kDouble) : at::Tensor());
  const Tensors actual = call(attention, qkv, upstream);
  for (size_t i = 0; i < exact.size(); ++i) {
    const at::Tensor expected = exact[i].detach();
    const double error = (head(actual[i]) - expected).abs().max().item<double>();
    const double size = expected.abs().max().item<double>();
    TORCH_CHECK(error <= 1e-4 * (1.0 + size), "bench_attention: ", name, " at ", shape.name(),
                " is off by ", error, " in result ", i, "; nothing is timed");
  }
}

// Operations a second of one core: nothing but multiply-adds, and LibTorch's matrix product.
double multiply_add_peak() {
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    double operations = 0.0;
    const double seconds =
        seconds_of([&] { operations = mini::kernels::multiply_adds(200000); }, 1);
    rates.push_back(operations / seconds);
  }
  return quantile(rates, 1.0);
}

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
  double spread;          // of ours, relative
  double ratio;           // peer / ours: the median over pairs of turns
  double rate;            // operations a second of ours
  double peak_share;
};

std::vector<Row> measure(const Options& options, const Shape& shape, bool backward, int threads) {
  torch::manual_seed(0);
  const auto draw = [&](int64_t rows) {
    return at::randn({shape.batch, shape.heads, rows, shape.head_size}).requires_grad_(backward);
  };
  const Tensors qkv{draw(shape.tq), draw(shape.tk), draw(shape.tk)};
  const at::Tensor upstream = backward ? draw(shape.tq).detach() : at::Tensor();
  const Attention own = [&](const Tensors& in) { return ours(shape, in); };
  const std::vector<Peer> peers = peers_of(shape);

  verify("mini", shape, own, qkv, upstream);
  for (const Peer& peer : peers) verify(peer.name, shape, peer.attention, qkv, upstream);

  std::vector<Row> rows;
  for (const Peer& peer : peers) {
    const auto run_ours = [&] { call(own, qkv, upstream); };
    const auto run_peer = [&] { call(peer.attention, qkv, upstream); };
    // Short calls are repeated to about a millisecond, far above what the clock resolves.
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
  std::string target = mini::kernels::target_name();
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
      "{}, {}: peak {:.1f} GFLOP/s a core, LibTorch's matrix product {:.1f}\n"
      "allocator: {}\n\n",
      results.cpu, results.target, results.peak * 1e-9, results.matrix_product * 1e-9,
      options.default_malloc ? "as it comes" : "memory is kept between calls, for both sides");
  text += fmt::format("{:<24} {:>16} {:>7} {:>10} {:>11} {:>6} {:>11} {:>6} {:>8} {:>5}\n",
                      "batch,heads,TqxTk,hs", "pass", "threads", "peer", "ours us", "+-", "peer us",
                      "ratio", "GFLOP/s", "peak");
  for (const Row& row : results.rows) {
    text += fmt::format(
        "{:<24} {:>16} {:>7} {:>10} {:>11.1f} {:>5.1f}% {:>11.1f} {:>6.2f} {:>8.1f} {:>4.0f}%\n",
        row.shape.name(), row.backward ? "forward_backward" : "forward", row.threads, row.peer,
        row.ours_s * 1e6, row.spread * 100, row.peer_s * 1e6, row.ratio, row.rate * 1e-9,
        row.peak_share * 100);
  }
  text += fmt::format(
      "\nratio: time of the peer / ours, the median over turns; peak: share of the multiply-adds\n"
      "that the cores could do. Against sdpa_4d, geometric mean of the ratios: forward {:.2f},\n"
      "forward with backward {:.2f}.\n",
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
                    {"pass", row.backward ? "forward_backward" : "forward"},
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
                          row.shape.head_size, row.shape.causal,
                          row.backward ? "forward_backward" : "forward", row.threads, row.peer,
                          row.ours_s * 1e6, row.peer_s * 1e6, row.ratio, row.peak_share});
  }
  return table;
}

void choose_target(const std::string& name) {
  std::string known;
  for (const int64_t target : mini::kernels::supported_targets()) {
    mini::kernels::set_target(target);
    if (name == mini::kernels::target_name()) {
      return;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", mini::kernels::target_name());
  }
  throw UsageError(fmt::format("--target: expected one of {}, got '{}'", known, name));
}

Results run(const Options& options) {
  if (!options.default_malloc) {
    keep_freed_memory();  // page faults would be most of what is measured
  }
  if (!options.target.empty()) {
    choose_target(options.target);
  }
  at::set_num_threads(1);
  Results results;
  for (const Shape& shape : kShapes) {
    if (shape.name().find(options.filter) == std::string::npos) continue;
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
    throw UsageError(fmt::format("--filter: no shape's name holds '{}'", options.filter));
  }
  return results;
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("bench_attention",
          "The fused attention beside LibTorch's and beside the formula, verified and timed.");
  app.add_option("--filter", options.filter, "Only shapes whose name holds this text");
  add_list(app, "--threads", options.threads, "Numbers of threads, separated by commas (1,2)",
           thread_count());
  app.add_option("--target", options.target, "Instruction set, such as AVX2 (the best)");
  app.add_option("--seconds", options.seconds, "Time for each pair of peers (0.5)")
      ->check(finite_number());
  app.add_flag("--default-malloc", options.default_malloc,
               "Leave the allocator as it comes, for both sides");
  return app.run(argc, argv, [&] {
    const Results results = run(options);
    return Report{to_text(options, results), to_json(results), to_table(results)};
  });
}
