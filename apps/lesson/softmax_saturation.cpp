// SPDX-License-Identifier: MIT
// The lesson's first example: the softmax of given scores, without and with a division.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/app.h"
#include "lesson/saturation.h"
#include "mini/attention.h"
#include "mini/diagnostics.h"
#include "mini/line_chart.h"

namespace mini::app {
namespace {

struct Options {
  std::vector<double> scores = {10, 20, 30};
  double divisor = 10;
};

// One row of weights and its measures.
struct Row {
  explicit Row(const at::Tensor& weights_)
      : weights(weights_),
        slopes(softmax_slope(weights)),
        entropy(weight_entropy(weights).item<double>()),
        entropy_share(normalized_weight_entropy(weights).item<double>()),
        peak(peak_weight(weights).item<double>()) {}

  at::Tensor weights;  // (T)
  at::Tensor slopes;   // (T)
  double entropy, entropy_share, peak;
};

// With the query [[1]] and the scores as keys of width 1, q k^T equals the scores.
Row weights_of(const at::Tensor& scores, double scale) {
  const at::Tensor q = at::ones({1, 1}, scores.options()), k = scores.unsqueeze(-1);
  const AttentionSteps steps = attention_steps(q, k, k, {.scale = scale});
  if (!steps.scaled_scores.isfinite().all().item<bool>()) {
    throw UsageError("--scores: expected scores that are finite when divided by --divisor");
  }
  return Row(steps.weights[0]);
}

std::string to_text(const Options& options, const Row& unscaled, const Row& scaled,
                    const MedianSlopes& slopes) {
  const std::string divided = fmt::format("divided by {:g}", options.divisor);
  std::string text = fmt::format("{:<22} {:>8g}\n", "scores", fmt::join(options.scores, " "));
  for (const auto& [name, row] : {std::pair("unscaled", &unscaled), {divided.c_str(), &scaled}}) {
    text += fmt::format("{:<22} {:>8.4f}\n", name, fmt::join(numbers(row->weights), " "));
    text +=
        fmt::format("{:<22} {:>8.1e}\n", "  slope w (1 - w)", fmt::join(numbers(row->slopes), " "));
    text += fmt::format("  entropy {:.4f} nats, {:.1f} % of ln {}; peak {:.4f}\n", row->entropy,
                        100 * row->entropy_share, options.scores.size(), row->peak);
  }
  return text + '\n' + saturation_text(slopes);
}

Json to_json(const Options& options, const Row& unscaled, const Row& scaled) {
  Json json = {{"scores", options.scores}, {"divisor", options.divisor}};
  for (const auto& [name, row] :
       {std::pair<std::string, const Row*>("unscaled", &unscaled), {"scaled", &scaled}}) {
    json[name] = tensor_json(row->weights);
    json[name + "_slopes"] = tensor_json(row->slopes);
    json[name + "_entropy"] = row->entropy;
    json[name + "_entropy_share"] = row->entropy_share;
    json[name + "_peak"] = row->peak;
  }
  return json;
}

// Charts of the weights and slopes over the divisor. The divisor ranges from 1, or |--divisor| if
// that is smaller, to ten times |--divisor|, at least 10.
std::string to_svg(const Options& options) {
  constexpr int kSteps = 120;
  const at::Tensor scores = torch::tensor(options.scores, at::kDouble);
  const double given = std::abs(options.divisor), sign = options.divisor < 0 ? -1.0 : 1.0;
  const double least = std::min(1.0, given);
  const double most = std::min(10 * std::max(1.0, given), std::numeric_limits<double>::max());
  LineChart weights, slopes;
  for (const double score : options.scores) {
    weights.curves.push_back({fmt::format("score {:g}", score), {}, {}});
    slopes.curves.push_back({fmt::format("score {:g}", score), {}, {}});
  }
  for (int i = 0; i <= kSteps; ++i) {
    const double share = static_cast<double>(i) / kSteps;
    const double divisor = std::pow(least, 1 - share) * std::pow(most, share);
    const Row row = weights_of(scores, sign / divisor);
    const std::vector<double> of_row = numbers(row.weights), slopes_of_row = numbers(row.slopes);
    for (size_t j = 0; j < of_row.size(); ++j) {
      weights.curves[j].x.push_back(divisor);
      weights.curves[j].y.push_back(of_row[j]);
      slopes.curves[j].x.push_back(divisor);
      slopes.curves[j].y.push_back(slopes_of_row[j]);
    }
  }
  const Axis divisors{.label = sign < 0 ? "minus the divisor" : "divisor",
                      .logarithmic = true,
                      .low = least,
                      .high = most};
  for (LineChart* chart : {&weights, &slopes}) {
    chart->x = divisors;
    chart->marks = {{fmt::format("divided by {:g}", options.divisor), given}};
  }
  weights.title = "Softmax weights";
  weights.y = {.label = "weight", .low = 0, .high = 1};
  slopes.title = "Slope of each weight";
  slopes.y = {.label = "slope w (1 - w)", .low = 0, .high = 0.25};
  return line_chart_svg({weights, slopes});
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("softmax_saturation",
          "Softmax weights of given scores, without and with a division of the scores.",
          {Format::kSvg});
  add_list(app, "--scores", options.scores, "Scores, separated by commas", finite_number())
      ->default_str(fmt::format("{}", fmt::join(options.scores, ",")));
  app.add_option("--divisor", options.divisor, "Divisor of the scores")
      ->check(divisor())
      ->capture_default_str();
  app.footer("Example: softmax_saturation --scores 10,20,30 --divisor 20");
  return app.run(argc, argv, [&] {
    const at::Tensor scores = torch::tensor(options.scores, at::kDouble);
    const Row unscaled = weights_of(scores, 1.0);
    const Row scaled = weights_of(scores, 1.0 / options.divisor);
    const Json json = to_json(options, unscaled, scaled);
    const MedianSlopes slopes =
        median_slopes(unscaled.weights, scaled.weights, weights_of(scores, 0.0).weights);
    return Report{.text = to_text(options, unscaled, scaled, slopes),
                  .json = json,
                  .table = long_table(json),
                  .svg = [&] { return to_svg(options); }};
  });
}
