// SPDX-License-Identifier: MIT
// The lesson's exercise, measured: why does attention divide the scores by sqrt(head size)?
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/app.h"
#include "mini/attention.h"
#include "mini/diagnostics.h"
#include "mini/line_chart.h"

namespace mini::app {
namespace {

struct Options {
  std::vector<int64_t> head_sizes = {8, 16, 32, 64, 128, 256, 512, 1024};
  int64_t keys = 16;
  int64_t rows = 1000;
  uint64_t seed = 42;
};

// What rows of scores and their weights show, on the whole.
struct Measures {
  Measures(const at::Tensor& scores, const at::Tensor& weights)
      : spread(score_spread(scores.flatten()).item<double>()),
        peak(peak_weight(weights).mean().item<double>()),
        entropy(weight_entropy(weights).mean().item<double>()),
        entropy_share(normalized_weight_entropy(weights).mean().item<double>()),
        slope(softmax_slope(weights).median().item<double>()) {}

  double spread;         // of all scores
  double peak;           // mean over rows
  double entropy;        // mean over rows, nats
  double entropy_share;  // mean over rows, of ln keys
  double slope;          // median over weights
};

struct Row {
  int64_t head_size;
  Measures unscaled, scaled;

  double root() const { return std::sqrt(static_cast<double>(head_size)); }
};

// Queries and their own keys, all from N(0, 1), a block of queries at a time.
Row measure(const Options& options, int64_t head_size) {
  constexpr int64_t kBlock = int64_t{1} << 24;  // numbers drawn at once
  const int64_t block = std::clamp<int64_t>(kBlock / (options.keys * head_size), 1, options.rows);
  std::vector<at::Tensor> scores[2], weights[2];
  for (int64_t done = 0; done < options.rows; done += block) {
    const int64_t rows = std::min(block, options.rows - done);
    const at::Tensor q = torch::randn({rows, 1, head_size});             // (rows, 1, hs)
    const at::Tensor k = torch::randn({rows, options.keys, head_size});  // (rows, keys, hs)
    const at::Tensor no_values = torch::empty({rows, options.keys, 0});
    for (const bool divided : {false, true}) {
      mini::AttentionOptions attention;
      if (!divided) {
        attention.scale = 1.0;
      }
      const mini::AttentionSteps steps = mini::attention_steps(q, k, no_values, attention);
      scores[divided].push_back(steps.scaled_scores);
      weights[divided].push_back(steps.weights);
    }
  }
  return {head_size, Measures(at::cat(scores[0]), at::cat(weights[0])),
          Measures(at::cat(scores[1]), at::cat(weights[1]))};
}

double even_slope(double keys) { return (1 - 1 / keys) / keys; }

std::string measures_text(const Measures& m) {
  return fmt::format("{:8.3f} {:6.3f} {:8.3f} {:6.0f} % {:9.1e}", m.spread, m.peak, m.entropy,
                     100 * m.entropy_share, m.slope);
}

// One sentence, each figure of it read off the rows.
std::string conclusion(const std::vector<Row>& rows) {
  const auto range = [&](const auto& figure) {
    const auto [least, most] =
        std::minmax_element(rows.begin(), rows.end(),
                            [&](const Row& a, const Row& b) { return figure(a) < figure(b); });
    return std::pair(figure(*least), figure(*most));
  };
  const auto raw = range([](const Row& r) { return r.unscaled.spread; });
  const auto raw_slope = range([](const Row& r) { return r.unscaled.slope; });
  const auto calm = range([](const Row& r) { return r.scaled.spread; });
  const auto calm_slope = range([](const Row& r) { return r.scaled.slope; });
  const auto off = range([](const Row& r) { return std::abs(r.unscaled.spread / r.root() - 1); });
  if (rows.size() == 1) {
    return fmt::format(
        "Unscaled, the scores spread by {:.2f}, {:.1f} % off sqrt(head size), and half of all "
        "weights\n"
        "have a slope of at most {:.1e}; divided, the spread is {:.2f} and that slope {:.1e}.\n",
        raw.first, 100 * off.second, raw_slope.first, calm.first, calm_slope.first);
  }
  return fmt::format(
      "Unscaled, the scores spread from {:.2f} to {:.2f}, within {:.1f} % of sqrt(head size), and\n"
      "half of all weights have a slope of at most {:.1e} down to {:.1e}, by head size;\n"
      "divided, the spread is {:.2f} to {:.2f} and that slope {:.3f} to {:.3f} at every head "
      "size.\n",
      raw.first, raw.second, 100 * off.second, raw_slope.second, raw_slope.first, calm.first,
      calm.second, calm_slope.first, calm_slope.second);
}

std::string to_text(const Options& options, const std::vector<Row>& rows) {
  const std::string queries =
      options.rows == 1 ? "1 query" : fmt::format("{} queries", options.rows);
  std::string text =
      fmt::format("{} with {}{}, all from N(0, 1), seed {}\n\n", queries,
                  counted(options.keys, "key"), options.rows == 1 ? "" : " each", options.seed);
  const std::string columns =
      fmt::format("{:>8} {:>6} {:>8} {:>8} {:>9}", "spread", "peak", "entropy",
                  fmt::format("of ln {}", options.keys), "slope");
  text += fmt::format("{:>18}{:<46}{}\n", "", "unscaled", "divided by sqrt(head size)");
  text += fmt::format("head size    sqrt {0}    {0}\n", columns);
  for (const Row& row : rows) {
    text += fmt::format("{:9} {:7.2f} {}    {}\n", row.head_size, row.root(),
                        measures_text(row.unscaled), measures_text(row.scaled));
  }
  text +=
      "\nspread: standard deviation of all scores; peak and entropy (nats): mean over the rows;\n";
  text += "slope: median over the weights of w (1 - w), how far a weight follows its score.\n";
  const auto keys = static_cast<double>(options.keys);
  text += options.keys == 1
              ? "A single key has all the weight: no weight has a choice.\n\n"
              : fmt::format("Even weights: peak {:.3f}, entropy {:.3f}, slope {:.1e}.\n\n",
                            1 / keys, std::log(keys), even_slope(keys));
  return text + conclusion(rows);
}

Json to_json(const Measures& m) {
  return {{"spread", m.spread},
          {"peak", m.peak},
          {"entropy", m.entropy},
          {"entropy_share", m.entropy_share},
          {"slope", m.slope}};
}

Json to_json(const Options& options, const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"head_size", row.head_size},
                    {"sqrt_head_size", row.root()},
                    {"unscaled", to_json(row.unscaled)},
                    {"scaled", to_json(row.scaled)}});
  }
  return {{"keys", options.keys}, {"rows", options.rows}, {"seed", options.seed}, {"sweep", list}};
}

Table to_table(const std::vector<Row>& rows) {
  Table table{{"head_size", "division", "spread", "peak", "entropy", "entropy_share", "slope"}, {}};
  for (const Row& row : rows) {
    for (const auto& [division, m] :
         {std::pair("none", &row.unscaled), {"sqrt(head_size)", &row.scaled}}) {
      table.rows.push_back(
          {row.head_size, division, m->spread, m->peak, m->entropy, m->entropy_share, m->slope});
    }
  }
  return table;
}

// One figure over the head sizes, without and with the division, and what to compare it with.
mini::LineChart chart_of(const std::vector<Row>& rows, const std::string& title,
                         const mini::Axis& y, double Measures::*figure,
                         const std::string& reference_name,
                         const std::function<double(const Row&)>& reference) {
  mini::Curve unscaled{"without the division", {}, {}}, scaled{"divided by \u221ad_k", {}, {}},
      compared{reference_name, {}, {}, /*reference=*/true};
  mini::Axis sizes{.label = "head size d_k", .logarithmic = true};
  for (const Row& row : rows) {
    const auto size = static_cast<double>(row.head_size);
    sizes.ticks.push_back(size);
    for (const auto& [curve, value] : {std::pair(&unscaled, row.unscaled.*figure),
                                       {&scaled, row.scaled.*figure},
                                       {&compared, reference(row)}}) {
      curve->x.push_back(size);
      curve->y.push_back(value);
    }
  }
  return {.title = title, .x = sizes, .y = y, .curves = {unscaled, scaled, compared}};
}

std::string to_svg(const Options& options, std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.head_size < b.head_size; });
  const auto keys = static_cast<double>(options.keys);
  const std::string even = fmt::format("all {} keys alike", options.keys);
  return mini::line_chart_svg(
      {chart_of(rows, "Spread of the scores", {.label = "standard deviation", .logarithmic = true},
                &Measures::spread, "\u221ad_k", &Row::root),
       chart_of(rows, "Peak", {.label = "largest weight, mean over rows", .low = 0, .high = 1},
                &Measures::peak, even, [&](const Row&) { return 1 / keys; }),
       chart_of(rows, "Entropy", {.label = "nats, mean over rows", .low = 0}, &Measures::entropy,
                even, [&](const Row&) { return std::log(keys); }),
       chart_of(rows, "Slope w (1 - w)", {.label = "median over weights", .logarithmic = true},
                &Measures::slope, even, [&](const Row&) { return even_slope(keys); })});
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("sweep_head_size",
          "Scores and softmax weights against the head size, without and with the division "
          "by its square root.",
          {Format::kSvg});
  add_list(app, "--head-sizes", options.head_sizes,
           "Head sizes, separated by commas (8,16,32,64,128,256,512,1024)", positive_integer());
  app.add_option("--keys", options.keys, "Keys of each query (16)")->transform(positive_integer());
  app.add_option("--rows", options.rows, "Queries (1000)")->transform(positive_integer());
  app.add_option("--seed", options.seed, "Seed of the draws (42)")->transform(seed_number());
  app.footer("Example: sweep_head_size --head-sizes 32,512 --keys 64");
  return app.run(argc, argv, [&] {
    const torch::NoGradGuard no_grad;
    std::vector<Row> rows;
    for (const int64_t head_size : options.head_sizes) {
      torch::manual_seed(options.seed);  // so that a row does not depend on those before it
      rows.push_back(measure(options, head_size));
    }
    return Report{.text = to_text(options, rows),
                  .json = to_json(options, rows),
                  .table = to_table(rows),
                  .svg = [&options, rows] { return to_svg(options, rows); }};
  });
}
