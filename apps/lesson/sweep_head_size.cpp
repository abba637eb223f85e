// SPDX-License-Identifier: MIT
// Why attention divides the scores by sqrt(head size): measures of scores and weights over the head
// size, for random queries and keys.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/app.h"
#include "lesson/saturation.h"
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

// Measures of many rows of scores and their weights.
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
  double entropy_share;  // mean over rows, as a share of ln keys
  double slope;          // median over weights
};

struct Row {
  int64_t head_size;
  Measures unscaled, scaled;

  double root() const { return std::sqrt(static_cast<double>(head_size)); }
};

// Draws queries from N(0, 1), and separate keys for each query. Blocks of queries bound the memory.
Row measure(const Options& options, int64_t head_size) {
  constexpr int64_t kBlock = int64_t{1} << 24;  // entries of k in a block
  const int64_t block = std::clamp<int64_t>(kBlock / (options.keys * head_size), 1, options.rows);
  std::vector<at::Tensor> scores[2], weights[2];
  for (int64_t done = 0; done < options.rows; done += block) {
    const int64_t rows = std::min(block, options.rows - done);
    const at::Tensor q = torch::randn({rows, 1, head_size});             // (rows, 1, hs)
    const at::Tensor k = torch::randn({rows, options.keys, head_size});  // (rows, keys, hs)
    const at::Tensor no_values = torch::empty({rows, options.keys, 0});
    for (const bool divided : {false, true}) {
      AttentionOptions attention;
      if (!divided) {
        attention.scale = 1.0;
      }
      const AttentionSteps steps = attention_steps(q, k, no_values, attention);
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

// The head sizes at which the unscaled softmax is saturated.
std::string saturation_text(const Options& options, const std::vector<Row>& rows) {
  const double even = even_slope(static_cast<double>(options.keys));
  std::string unscaled, scaled;
  for (const Row& row : rows) {
    for (const auto& [sizes, m] : {std::pair(&unscaled, &row.unscaled), {&scaled, &row.scaled}}) {
      if (is_saturated(m->slope, even)) {
        *sizes += fmt::format("{}{}", sizes->empty() ? "" : ", ", row.head_size);
      }
    }
  }
  const auto sentence = [](const char* name, const std::string& sizes) {
    const bool several = sizes.find(',') != std::string::npos;
    return sizes.empty()
               ? fmt::format("The {} softmax is not saturated at any of these head sizes.\n", name)
               : fmt::format("The {} softmax is saturated at head size{} {}.\n", name,
                             several ? "s" : "", sizes);
  };
  return sentence("unscaled", unscaled) + sentence("divided", scaled);
}

std::string conclusion(const std::vector<Row>& rows) {
  const auto range = [&](const auto& figure) {
    const auto [least, most] =
        std::minmax_element(rows.begin(), rows.end(),
                            [&](const Row& a, const Row& b) { return figure(a) < figure(b); });
    return std::pair(figure(*least), figure(*most));
  };
  const auto raw = range([](const Row& r) { return r.unscaled.spread; });
  const auto raw_slope = range([](const Row& r) { return r.unscaled.slope; });
  const auto scaled = range([](const Row& r) { return r.scaled.spread; });
  const auto scaled_slope = range([](const Row& r) { return r.scaled.slope; });
  const auto off = range([](const Row& r) { return std::abs(r.unscaled.spread / r.root() - 1); });
  if (rows.size() == 1) {
    return fmt::format(
        "Unscaled, the spread is {:.2f}, which differs from sqrt(head size) by {:.1f} %, and the\n"
        "median slope is {:.1e}. Divided, the spread is {:.2f} and the median slope is {:.1e}.\n",
        raw.first, 100 * off.second, raw_slope.first, scaled.first, scaled_slope.first);
  }
  return fmt::format(
      "Unscaled, the spread ranges from {:.2f} to {:.2f} and differs from sqrt(head size) by at "
      "most {:.1f} %.\nThe median slope ranges from {:.1e} down to {:.1e}.\n"
      "Divided, the spread ranges from {:.2f} to {:.2f} and the median slope from {:.3f} to "
      "{:.3f}.\n",
      raw.first, raw.second, 100 * off.second, raw_slope.second, raw_slope.first, scaled.first,
      scaled.second, scaled_slope.first, scaled_slope.second);
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
      "\nspread: standard deviation of all scores\n"
      "peak, entropy: largest weight of a row, entropy of a row in nats; means over the rows\n"
      "slope: derivative of a weight w with respect to its score, w (1 - w); median over all "
      "weights\n";
  const auto keys = static_cast<double>(options.keys);
  if (options.keys == 1) {
    return text + "Each query has a single key, so each weight is 1 whatever the score.\n\n" +
           conclusion(rows);
  }
  text += fmt::format(
      "Even weights: peak {:.3f}, entropy {:.3f}, slope {:.1e}.\n"
      "Saturated: a median slope below {:.1e}, one hundredth of the slope of even weights.\n\n",
      1 / keys, std::log(keys), even_slope(keys), kSaturatedShare * even_slope(keys));
  return text + conclusion(rows) + saturation_text(options, rows);
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

// A chart of one measure over the head size, without and with the division, and of a reference.
LineChart chart_of(const std::vector<Row>& rows, const std::string& title, const Axis& y,
                   double Measures::*figure, const std::string& reference_name,
                   const std::function<double(const Row&)>& reference) {
  Curve unscaled{"without the division", {}, {}}, scaled{"divided by \u221ad_k", {}, {}},
      compared{reference_name, {}, {}, /*reference=*/true};
  Axis sizes{.label = "head size d_k", .logarithmic = true};
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
  const std::string even = fmt::format("even weights of {} keys", options.keys);
  return line_chart_svg(
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
          "Measures of scores and softmax weights over the head size, without and with the "
          "division of the scores by its square root.",
          {Format::kSvg});
  add_list(app, "--head-sizes", options.head_sizes, "Head sizes, separated by commas",
           positive_integer())
      ->default_str(fmt::format("{}", fmt::join(options.head_sizes, ",")));
  app.add_option("--keys", options.keys, "Number of keys of each query")
      ->transform(positive_integer())
      ->capture_default_str();
  app.add_option("--rows", options.rows, "Number of queries")
      ->transform(positive_integer())
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the queries and keys")
      ->transform(seed_number())
      ->capture_default_str();
  app.footer("Example: sweep_head_size --head-sizes 32,512 --keys 64");
  return app.run(argc, argv, [&] {
    const torch::NoGradGuard no_grad;
    std::vector<Row> rows;
    for (const int64_t head_size : options.head_sizes) {
      torch::manual_seed(options.seed);  // a row does not depend on the other head sizes
      rows.push_back(measure(options, head_size));
    }
    return Report{.text = to_text(options, rows),
                  .json = to_json(options, rows),
                  .table = to_table(rows),
                  .svg = [&options, rows] { return to_svg(options, rows); }};
  });
}
