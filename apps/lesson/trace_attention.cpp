// SPDX-License-Identifier: MIT
// Attention on given matrices, step by step, and the lesson's exercise, which compares the weights
// with those without the division.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cmath>

#include "common/app.h"
#include "lesson/lesson_page.h"
#include "lesson/matrices.h"
#include "lesson/saturation.h"
#include "mini/attention.h"
#include "mini/diagnostics.h"

namespace mini::app {
namespace {

struct Options {
  std::string input;
  std::optional<double> scale;
  bool causal = false;
};

// An example that can be checked by hand: sqrt(d_k) is 2, the scores are integers, and the first
// three columns of the output equal the weights.
AttentionMatrices worked_example() {
  return {.q = torch::tensor({{{1., 0., 1., 0.}, {0., 2., 0., 0.}, {1., 1., 0., 2.}}}, at::kDouble),
          .k = torch::tensor({{{1., 0., 1., 0.}, {0., 2., 0., 1.}, {1., 1., 0., 0.}}}, at::kDouble),
          .v = torch::tensor({{{1., 0., 0., 2.}, {0., 1., 0., 4.}, {0., 0., 1., 6.}}}, at::kDouble),
          .mask = std::nullopt};
}

struct Checks {
  bool finite, shapes, rows_sum_to_one;
  int64_t rows, hidden_rows;  // rows of weights, and how many of them have no visible key
};

struct Trace {
  AttentionMatrices in;
  double scale;
  bool scale_given;
  bool causal;
  AttentionSteps steps;
  at::Tensor unscaled_weights;  // weights for a factor of 1
  MedianSlopes slopes;
  Checks checks;
};

Checks check(const AttentionMatrices& in, const AttentionSteps& steps) {
  std::vector<int64_t> scores_shape = in.q.sizes().vec(), output_shape = scores_shape;
  scores_shape.back() = in.k.size(-2);
  output_shape.back() = in.v.size(-1);
  bool finite = true;
  for (const at::Tensor& step : {steps.scores, steps.scaled_scores, steps.weights, steps.output}) {
    finite = finite && step.isfinite().all().item<bool>();
  }
  const at::Tensor sums = steps.weights.sum(-1), hidden = steps.weights.eq(0).all(-1);
  return {.finite = finite,
          .shapes = steps.scores.sizes() == scores_shape && steps.weights.sizes() == scores_shape &&
                    steps.output.sizes() == output_shape,
          .rows_sum_to_one = (sums - 1).abs().lt(1e-9).logical_or(hidden).all().item<bool>(),
          .rows = sums.numel(),
          .hidden_rows = hidden.sum().item<int64_t>()};
}

Trace trace(const Options& options, const AttentionMatrices& in) {
  AttentionOptions attention{
      .mask = in.mask,
      .scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(in.q.size(-1)))),
      .causal = options.causal ? Causal::kLowerRight : Causal::kNone};
  const AttentionSteps steps = attention_steps(in.q, in.k, in.v, attention);
  const double scale = *attention.scale;
  attention.scale = 1.0;
  const at::Tensor unscaled = attention_steps(in.q, in.k, in.v, attention).weights;
  attention.scale = 0.0;
  const at::Tensor even = attention_steps(in.q, in.k, in.v, attention).weights;
  return {in,
          scale,
          options.scale.has_value(),
          options.causal,
          steps,
          unscaled,
          median_slopes(unscaled, steps.weights, even),
          check(in, steps)};
}

// Traces the file or, without one, the built-in example. An error in the shapes names the file.
Trace trace_input(const Options& options) {
  if (options.input.empty()) {
    return trace(options, worked_example());
  }
  try {
    return trace(options, read_attention_matrices(options.input));
  } catch (const c10::Error& error) {
    throw std::runtime_error(
        fmt::format("'{}': {}", options.input, error.what_without_backtrace()));
  }
}

std::string shape_text(const at::Tensor& t) {
  return fmt::format("{}", fmt::join(t.sizes(), " x "));
}

std::string row_text(const at::Tensor& row) {
  const at::Tensor unsigned_nan =
      row.masked_fill(row.isnan(), NAN);  // the sign of a NaN has no meaning
  return fmt::format("{:>9.4f}", fmt::join(numbers(unsigned_nan), ""));
}

// Matrices with equal numbers of rows, side by side; the batches one after the other.
std::string matrices_text(const std::vector<at::Tensor>& matrices) {
  std::string text;
  if (matrices[0].dim() == 3) {
    for (int64_t b = 0; b < matrices[0].size(0); ++b) {
      std::vector<at::Tensor> of_batch;
      for (const at::Tensor& m : matrices) {
        of_batch.push_back(m[b]);
      }
      text += matrices[0].size(0) > 1 ? fmt::format("  batch {}\n", b) : "";
      text += matrices_text(of_batch);
    }
    return text;
  }
  for (int64_t i = 0; i < matrices[0].size(0); ++i) {
    for (const at::Tensor& m : matrices) {
      text += (text.empty() || text.back() == '\n' ? "" : "    ") + row_text(m[i]);
    }
    text += '\n';
  }
  return text;
}

std::string step_text(const std::string& name, const at::Tensor& step) {
  return fmt::format("{}: {}\n{}\n", name, shape_text(step), matrices_text({step}));
}

std::string checks_text(const Checks& checks) {
  const auto answer = [](bool holds) { return holds ? "yes" : "NO"; };
  std::string text =
      fmt::format("finite values: {}\nexpected shapes: {}\nrows sum to one: {}",
                  answer(checks.finite), answer(checks.shapes), answer(checks.rows_sum_to_one));
  if (checks.hidden_rows > 0) {
    text += fmt::format("; {} of {} rows {} to 0, with no visible key", checks.hidden_rows,
                        checks.rows, checks.hidden_rows == 1 ? "sums" : "sum");
  }
  return text + "\n\n";
}

// The lesson's exercise: compares the weights and their peaks without and with the factor.
std::string exercise_text(const Trace& t) {
  if (t.scale == 1.0) {
    return fmt::format("The factor is 1, so it does not change the weights.{}\n",
                       t.scale_given ? " Omit --scale to use 1 / sqrt(d_k)." : "");
  }
  const at::Tensor without = peak_weight(t.unscaled_weights), with = peak_weight(t.steps.weights);
  if (!t.checks.finite || !without.isfinite().all().item<bool>()) {
    return "Some weights are not finite, so their peaks are not compared.\n";
  }
  const int64_t sharper = without.gt(with).sum().item<int64_t>();
  const size_t width = static_cast<size_t>(9 * t.steps.weights.size(-1));
  std::string text = "The exercise: weights without and with the factor\n";
  text += fmt::format("{:>{}}    {:>{}}\n", "without", width, "with", width);
  text += matrices_text({t.unscaled_weights, t.steps.weights});
  text += "\npeak of each row, without and with\n";
  text += matrices_text({without.unsqueeze(-1), with.unsqueeze(-1)});
  text += fmt::format(
      "\nWithout the factor, the peak is higher in {} of {} rows.\n"
      "The mean peak is {:.4f} without the factor and {:.4f} with it.\n",
      sharper, without.numel(), without.mean().item<double>(), with.mean().item<double>());
  return text + saturation_text(t.slopes);
}

std::string to_text(const Trace& t) {
  const int64_t d_k = t.in.q.size(-1);
  std::string text = "Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V\n";
  text += fmt::format("d_k = {}, 1 / sqrt(d_k) = {:.4f}{}\n\n", d_k,
                      1.0 / std::sqrt(static_cast<double>(d_k)),
                      t.scale_given ? fmt::format("; --scale replaces it by {:.4f}", t.scale) : "");
  text += step_text("Q", t.in.q) + step_text("K", t.in.k) + step_text("V", t.in.v);
  text += step_text("scores = Q K^T", t.steps.scores);
  text += step_text(fmt::format("scaled scores = {:.4f} scores", t.scale), t.steps.scaled_scores);
  const bool added = t.in.mask && t.in.mask->scalar_type() != at::kBool;
  const std::string masked = fmt::format("{}{}",
                                         added       ? " + mask"
                                         : t.in.mask ? ", masked"
                                                     : "",
                                         t.causal ? ", causal" : "");
  text += step_text(fmt::format("weights = softmax(scaled scores{})", masked), t.steps.weights);
  text += step_text("output = weights V", t.steps.output);
  return text + checks_text(t.checks) + exercise_text(t);
}

Json to_json(const Trace& t) {
  Json json;
  Json shapes;
  const auto add = [&](const char* name, const at::Tensor& tensor) {
    json[name] = tensor_json(tensor);
    shapes[name] = tensor.sizes().vec();
  };
  add("q", t.in.q);
  add("k", t.in.k);
  add("v", t.in.v);
  if (t.in.mask) {
    add("mask", *t.in.mask);
  }
  json["scale"] = t.scale;
  json["causal"] = t.causal;
  add("scores", t.steps.scores);
  add("scaled_scores", t.steps.scaled_scores);
  add("weights", t.steps.weights);
  add("output", t.steps.output);
  add("peaks", peak_weight(t.steps.weights));
  add("unscaled_weights", t.unscaled_weights);
  add("unscaled_peaks", peak_weight(t.unscaled_weights));
  json["median_slope"] = t.slopes.scaled;
  json["unscaled_median_slope"] = t.slopes.unscaled;
  json["even_median_slope"] = t.slopes.even;
  json["shapes"] = shapes;
  json["checks"] = {{"finite", t.checks.finite},
                    {"shapes", t.checks.shapes},
                    {"rows_sum_to_one", t.checks.rows_sum_to_one}};
  return json;
}

// The mask and causality as one mask that is added to the scaled scores.  (B, Tq, Tk)
at::Tensor additive_mask(const Trace& t) {
  at::Tensor mask = at::zeros_like(t.steps.scores);
  if (t.in.mask) {
    mask = t.in.mask->scalar_type() == at::kBool
               ? mask.masked_fill(t.in.mask->logical_not(), -INFINITY)
               : mask + *t.in.mask;
  }
  const at::Tensor no_q = at::zeros_like(t.in.q), no_k = at::zeros_like(t.in.k);
  const auto even = attention_steps(
      no_q, no_k, t.in.v, {.scale = 1.0, .causal = t.causal ? Causal::kLowerRight : Causal::kNone});
  mask = mask.masked_fill(even.weights.eq(0), -INFINITY);
  return mask.dim() == 2 ? mask.unsqueeze(0) : mask;
}

std::string to_html(const Trace& t) {
  const int64_t d_k = t.in.q.size(-1);
  const auto batch = [](const at::Tensor& m) {
    return tensor_json(m.dim() == 2 ? m.unsqueeze(0) : m);
  };
  const int64_t queries = t.in.q.size(-2), keys = t.in.k.size(-2);
  Json data = {{"description",
                fmt::format("{} {} and {} {} of size {}, values of size {}{}", queries,
                            queries == 1 ? "query" : "queries", keys, keys == 1 ? "key" : "keys",
                            d_k, t.in.v.size(-1), t.causal ? ", causal" : "")},
               {"head_size", d_k},
               {"divisor", page_divisor(t.scale, d_k)},
               {"q", batch(t.in.q)},
               {"k", batch(t.in.k)},
               {"v", batch(t.in.v)}};
  if (t.in.mask || t.causal) {
    data["mask"] = tensor_json(additive_mask(t));
  }
  return lesson_page("Attention, step by step", data);
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("trace_attention",
          "Attention step by step, on the matrices of a file or of a built-in example.",
          {Format::kHtml});
  app.add_option("--input", options.input,
                 "JSON file with q, k, v and optionally mask, each a matrix or a list of matrices")
      ->check(file_name())
      ->type_name("FILE");
  app.add_option("--scale", options.scale, "Factor on the scores")
      ->check(finite_number())
      ->default_str("1 / sqrt(d_k)");
  app.add_flag("--causal", options.causal, "Hide every key to the right of its query");
  app.footer(R"(Example of a file: {"q": [[1, 0], [0, 1]], "k": [[1, 0], [0, 1]], "v": [[1], [3]],
                    "mask": [[true, false], [true, true]]}
A mask of true and false shows or hides keys. A mask of numbers is added to the scaled scores; the
string "-inf" in it hides a key.
--format html writes a page of at most 300 KB. The divisor on the page ranges from 1 to d_k, so
--scale must be between 1 / d_k and 1.)");
  return app.run(argc, argv, [&] {
    const Trace t = trace_input(options);
    const Json json = to_json(t);
    const bool sound = t.checks.finite && t.checks.shapes && t.checks.rows_sum_to_one;
    return Report{.text = to_text(t),
                  .json = json,
                  .table = long_table(json),
                  .failure = sound ? "" : "a check of the result failed: see the output",
                  .html = [t] { return to_html(t); }};
  });
}
