// SPDX-License-Identifier: MIT
// The attention weights of one seeded head, without and with the division of the scores by the
// square root of the head size.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "common/app.h"
#include "lesson/lesson_page.h"
#include "lesson/saturation.h"
#include "mini/attention.h"
#include "mini/diagnostics.h"
#include "mini/head.h"
#include "mini/heat_map.h"

namespace mini::app {
namespace {

// The text output shows at most this many rows and columns of a grid.
constexpr int64_t kShown = 16;

struct Options {
  uint64_t seed = 42;
  int64_t tokens = 4;
  int64_t n_embd = 128;
  int64_t head_size = 32;
  std::optional<double> scale;
  bool causal = false;
};

// One grid of weights and the measures of its rows.
struct Grid {
  Grid(const at::Tensor& weights_, const at::Tensor& visible_)
      : weights(weights_),
        visible(visible_),
        row_sums(weights.sum(-1)),
        peaks(peak_weight(weights)),
        entropies(weight_entropy(weights)),
        normalized_entropies(entropies / visible.sum(-1).log().clamp_min(FLT_MIN)) {}

  double smallest() const { return weights.masked_select(visible).min().item<double>(); }
  double largest() const { return weights.max().item<double>(); }
  double mean_entropy() const { return entropies.mean().item<double>(); }
  double mean_peak() const { return peaks.mean().item<double>(); }

  at::Tensor weights;               // (T, T)
  at::Tensor visible;               // (T, T), bool: true where the query may attend to the key
  at::Tensor row_sums;              // (T)
  at::Tensor peaks;                 // (T)
  at::Tensor entropies;             // (T), nats
  at::Tensor normalized_entropies;  // (T), 1 for even weights; 0 in rows with one visible key
};

struct Comparison {
  at::Tensor scores;  // (1, T, T)
  double scale;
  double spread;  // of all visible scores
  Grid unscaled, scaled;
  MedianSlopes slopes;
};

Comparison compare(const Options& options) {
  const torch::NoGradGuard no_grad;
  // The lesson draws in this order: the input first, then the weights of query, key and value.
  torch::manual_seed(options.seed);
  const at::Tensor x = torch::randn({1, options.tokens, options.n_embd});  // (1, T, C)
  Head head(HeadOptions(options.n_embd, options.head_size));

  const at::Tensor q = head->query(x), k = head->key(x), v = head->value(x);  // (1, T, hs)
  const double scale =
      options.scale.value_or(1.0 / std::sqrt(static_cast<double>(options.head_size)));
  const auto causal = options.causal ? Causal::kLowerRight : Causal::kNone;
  const auto unscaled = attention_steps(q, k, v, {.scale = 1.0, .causal = causal});
  const auto scaled = attention_steps(q, k, v, {.scale = scale, .causal = causal});
  TORCH_CHECK(scaled.scaled_scores.isfinite().all().item<bool>(), "--scale: scores times ", scale,
              " are too large for float32; use a smaller --scale");
  const auto even = attention_steps(q, k, v, {.scale = 0.0, .causal = causal});
  const at::Tensor visible = even.weights[0].gt(0);
  return {unscaled.scores,
          scale,
          score_spread(unscaled.scores[0].masked_select(visible)).item<double>(),
          Grid(unscaled.weights[0], visible),
          Grid(scaled.weights[0], visible),
          median_slopes(unscaled.weights, scaled.weights, even.weights)};
}

// A row in the lesson's format: "0.43 0.25 0.30 0.03".
std::string row_text(const at::Tensor& row) {
  return fmt::format("{:.2f}", fmt::join(numbers(row.slice(0, 0, kShown)), " "));
}

std::string plain_grids_text(const Grid& unscaled, const Grid& scaled) {
  const int64_t T = unscaled.weights.size(0);
  const auto width = static_cast<size_t>(std::max<int64_t>(16, 5 * std::min(T, kShown) - 1));
  std::string text = fmt::format("{:<{}}    scaled weights\n", "unscaled weights", width);
  for (int64_t i = 0; i < std::min(T, kShown); ++i) {
    text += fmt::format("{:<{}}    {}\n", row_text(unscaled.weights[i]), width,
                        row_text(scaled.weights[i]));
  }
  if (T > kShown) {
    text += fmt::format("(the first {0} of {1} rows and columns; --format csv or json gives all)\n",
                        kShown, T);
  }
  return text;
}

// Both heat maps share one colour scale from 0, so that a colour means the same weight in both.
std::vector<HeatMap> heat_maps(const Comparison& c) {
  return {{.values = c.unscaled.weights, .title = "unscaled weights"},
          {.values = c.scaled.weights, .title = "scaled weights"}};
}

std::string grids_text(const Comparison& c, const Terminal& terminal) {
  if (terminal.colors != Colors::kNone) {
    return heat_map_text(heat_maps(c), {.low = 0}, terminal);
  }
  return plain_grids_text(c.unscaled, c.scaled);
}

std::string row_measures(const Grid& grid, int64_t row) {
  return fmt::format("{:5.2f} {:5.2f} {:8.2f} {:6.0f} %", grid.row_sums[row].item<double>(),
                     grid.peaks[row].item<double>(), grid.entropies[row].item<double>(),
                     100 * grid.normalized_entropies[row].item<double>());
}

std::string measures_text(const Grid& unscaled, const Grid& scaled) {
  const int64_t T = unscaled.weights.size(0);
  const std::string columns =
      fmt::format("{:>5} {:>5} {:>8} {:>8}", "sum", "peak", "entropy",
                  unscaled.visible.all().item<bool>() ? fmt::format("of ln {}", T) : "of even");
  std::string text = fmt::format("        {:<32}scaled\n", "unscaled");
  text += fmt::format("row  {0}    {0}\n", columns);
  for (int64_t i = 0; i < std::min(T, kShown); ++i) {
    text += fmt::format("{:>3}  {}    {}\n", i, row_measures(unscaled, i), row_measures(scaled, i));
  }
  return text;
}

std::string conclusion(const Comparison& c) {
  constexpr double kRounding = 1e-6;
  const double gain = c.scaled.mean_entropy() - c.unscaled.mean_entropy();
  const char* change = gain > kRounding    ? "makes the weights more even"
                       : gain < -kRounding ? "makes the weights less even"
                                           : "does not change how even the weights are";
  return fmt::format(
      "The factor {:.4f} {}.\n"
      "The mean entropy is {:.2f} nats unscaled and {:.2f} nats scaled.\n"
      "The mean peak is {:.2f} unscaled and {:.2f} scaled.\n",
      c.scale, change, c.unscaled.mean_entropy(), c.scaled.mean_entropy(), c.unscaled.mean_peak(),
      c.scaled.mean_peak());
}

std::string described(const Options& options) {
  return fmt::format("{} token{} of width {}, one head of size {}, seed {}{}", options.tokens,
                     options.tokens == 1 ? "" : "s", options.n_embd, options.head_size,
                     options.seed, options.causal ? ", causal" : "");
}

std::string to_text(const Options& options, const Comparison& c, const Terminal& terminal) {
  const int64_t T = options.tokens;
  const int64_t row = std::min<int64_t>(3, T - 1);
  std::string text = described(options) + "\n\n";
  text += fmt::format("x: (1, {0}, {1}) -> query, key, value: (1, {0}, {2})\n", T, options.n_embd,
                      options.head_size);
  text += fmt::format("scores shape: ({})\n", fmt::join(c.scores.sizes(), ", "));
  text += fmt::format("row {}: {}\n", row, row_text(c.scores[0][row]));
  text += fmt::format("scale factor: {:.4f}\n\n", c.scale);
  text += grids_text(c, terminal) + '\n';
  text += measures_text(c.unscaled, c.scaled) + '\n';
  for (const auto& [name, grid] : {std::pair("unscaled", &c.unscaled), {"scaled", &c.scaled}}) {
    text += fmt::format("{} weights: smallest {:.2f}, largest {:.2f}\n", name, grid->smallest(),
                        grid->largest());
  }
  text += fmt::format("spread of the scores: {:.2f} unscaled, {:.2f} scaled\n", c.spread,
                      c.spread * std::abs(c.scale));
  return text + '\n' + conclusion(c) + saturation_text(c.slopes);
}

Json to_json(const Options& options, const Comparison& c) {
  Json json = {{"tokens", options.tokens},
               {"n_embd", options.n_embd},
               {"head_size", options.head_size},
               {"seed", options.seed},
               {"causal", options.causal},
               {"scores_shape", c.scores.sizes().vec()},
               {"scale", c.scale},
               {"scores", tensor_json(c.scores[0])},
               {"scores_spread", c.spread}};
  for (const auto& [name, grid] :
       {std::pair<std::string, const Grid*>("unscaled", &c.unscaled), {"scaled", &c.scaled}}) {
    json[name + "_weights"] = tensor_json(grid->weights);
    json[name + "_row_sums"] = tensor_json(grid->row_sums);
    json[name + "_peaks"] = tensor_json(grid->peaks);
    json[name + "_entropies"] = tensor_json(grid->entropies);
    json[name + "_entropy_shares"] = tensor_json(grid->normalized_entropies);
    json[name + "_smallest"] = grid->smallest();
    json[name + "_largest"] = grid->largest();
    json[name + "_mean_entropy"] = grid->mean_entropy();
    json[name + "_mean_peak"] = grid->mean_peak();
  }
  json["unscaled_median_slope"] = c.slopes.unscaled;
  json["scaled_median_slope"] = c.slopes.scaled;
  json["even_median_slope"] = c.slopes.even;
  return json;
}

std::string to_svg(const Comparison& c) { return heat_map_svg(heat_maps(c), {.low = 0}); }

std::string to_html(const Options& options, const Comparison& c) {
  Json data = {{"description", described(options)},
               {"head_size", options.head_size},
               {"divisor", page_divisor(c.scale, options.head_size)},
               {"scores", tensor_json(c.scores)}};
  if (options.causal) {
    const at::Tensor hidden = c.scaled.visible.logical_not();
    data["mask"] = tensor_json(at::zeros_like(c.scores).masked_fill(hidden, -INFINITY));
  }
  return lesson_page("Attention weights, without and with the division", data);
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("compare_weights",
          "Attention weights of one seeded head, without and with the division by the square "
          "root of the head size.",
          {Format::kSvg, Format::kHtml});
  app.add_option("--seed", options.seed, "Seed of the input and of the head's weights")
      ->transform(seed_number())
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "Number of tokens, T")
      ->transform(positive_integer())
      ->capture_default_str();
  app.add_option("--n-embd", options.n_embd, "Width of the input, C")
      ->transform(positive_integer())
      ->capture_default_str();
  app.add_option("--head-size", options.head_size, "Width of query, key and value, hs = d_k")
      ->transform(positive_integer())
      ->capture_default_str();
  app.add_option("--scale", options.scale, "Factor on the scores")
      ->check(finite_number())
      ->default_str("1 / sqrt(head size)");
  app.add_flag("--causal", options.causal, "Hide every key to the right of its query");
  app.footer(
      "Example: compare_weights --head-size 512, where the unscaled softmax is saturated.\n"
      "--format html writes a page of at most 300 KB, which is enough for about 90 tokens. The\n"
      "divisor on the page ranges from 1 to the head size, so --scale must be between\n"
      "1 / head size and 1.");
  return app.run(argc, argv, [&] {
    const Comparison comparison = compare(options);
    Report report;
    report.text = to_text(options, comparison, app.terminal());
    report.json = to_json(options, comparison);
    report.table = long_table(report.json);
    report.svg = [comparison] { return to_svg(comparison); };
    report.html = [options, comparison] { return to_html(options, comparison); };
    return report;
  });
}
