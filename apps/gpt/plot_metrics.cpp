// SPDX-License-Identifier: MIT
// Plots the curves of a training run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "common/app.h"
#include "gpt/metrics_file.h"
#include "gpt/progress.h"
#include "gpt/run_folder.h"
#include "mini/line_chart.h"

namespace mini::app {
namespace {

constexpr size_t kMostRows = 20;  // of the table

struct Run {
  explicit Run(std::vector<StepMetrics> steps_) : steps(std::move(steps_)) {
    for (const StepMetrics& step : steps) {
      if (std::isfinite(step.val_loss.value_or(NAN)) &&
          (!best || *step.val_loss < *best->val_loss)) {
        best = step;
      }
    }
  }

  std::vector<StepMetrics> steps;
  std::optional<StepMetrics> best;  // of the smallest val_loss
};

std::vector<StepMetrics> read_steps(const std::filesystem::path& run) {
  if (!std::filesystem::exists(run / kMetricsFile)) {
    throw std::runtime_error(fmt::format("'{}' is not the folder of a training run: it has no {}",
                                         run.string(), kMetricsFile));
  }
  Metrics metrics = read_metrics(run / kMetricsFile);
  if (metrics.torn) {
    Progress().note(
        fmt::format("the incomplete line after step {} is ignored", metrics.steps.back().step));
  }
  return std::move(metrics.steps);
}

// The rows of the table: the steps at which the run was evaluated, and the last step. Longer runs
// show evenly spaced ones of them, up to the last.
std::vector<const StepMetrics*> steps_to_show(const std::vector<StepMetrics>& steps) {
  std::vector<const StepMetrics*> evaluated;
  for (const StepMetrics& step : steps) {
    if (step.val_loss || &step == &steps.back()) {
      evaluated.push_back(&step);
    }
  }
  const size_t each = (evaluated.size() + kMostRows - 1) / kMostRows;
  std::vector<const StepMetrics*> shown;
  for (size_t i = (evaluated.size() - 1) % each; i < evaluated.size(); i += each) {
    shown.push_back(evaluated[i]);
  }
  return shown;
}

std::string row_text(const StepMetrics& step) {
  return fmt::format("{:8} {:11.4f} {:>9} {:14.2e} {:14.3f} {:9.0f} {:>9}\n", step.step,
                     step.train_loss, step.val_loss ? fmt::format("{:.4f}", *step.val_loss) : "",
                     step.learning_rate, step.gradient_norm, step.tokens_per_s,
                     duration_text(step.seconds));
}

std::string to_text(const Run& run) {
  const StepMetrics& last = run.steps.back();
  std::string text = fmt::format("{} steps, {} tokens, {}\n\n", last.step, last.tokens,
                                 duration_text(last.seconds));
  text += fmt::format("{:>8} {:>11} {:>9} {:>14} {:>14} {:>9} {:>9}\n", "step", "train_loss",
                      "val_loss", "learning_rate", "gradient_norm", "tokens/s", "time");
  for (const StepMetrics* step : steps_to_show(run.steps)) {
    text += row_text(*step);
  }
  text += !run.best ? "\nnot evaluated yet\n"
                    : fmt::format("\nbest val_loss {:.4f}, at step {}\n", *run.best->val_loss,
                                  run.best->step);
  return text;
}

Json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json to_json(const Run& run) {
  Json steps = Json::array();
  for (const StepMetrics& step : run.steps) {
    Json line = {{"step", step.step}, {"tokens", step.tokens}, {"train_loss", step.train_loss}};
    if (step.val_loss) {
      line["val_loss"] = number(step.val_loss);
    }
    line["learning_rate"] = step.learning_rate;
    line["gradient_norm"] = step.gradient_norm;
    line["tokens_per_s"] = step.tokens_per_s;
    line["seconds"] = step.seconds;
    steps.push_back(line);
  }
  return {{"best_step", !run.best ? Json(nullptr) : Json(run.best->step)},
          {"best_val_loss", !run.best ? Json(nullptr) : Json(*run.best->val_loss)},
          {"metrics", steps}};
}

Table to_table(const Run& run) {
  Table table{{"step", "tokens", "train_loss", "val_loss", "learning_rate", "gradient_norm",
               "tokens_per_s", "seconds"},
              {}};
  for (const StepMetrics& step : run.steps) {
    table.rows.push_back({step.step, step.tokens, step.train_loss, number(step.val_loss),
                          step.learning_rate, step.gradient_norm, step.tokens_per_s, step.seconds});
  }
  return table;
}

Curve curve_of(const Run& run, const std::string& name,
               const std::function<std::optional<double>(const StepMetrics&)>& figure) {
  Curve curve{name, {}, {}};
  for (const StepMetrics& step : run.steps) {
    if (const std::optional<double> value = figure(step)) {
      curve.x.push_back(static_cast<double>(step.step));
      curve.y.push_back(*value);
    }
  }
  return curve;
}

std::string to_svg(const Run& run) {
  const Axis steps{.label = "step"};
  std::vector<ChartMark> marks;
  if (run.best) {
    marks.push_back({fmt::format("best validation: {:.4f}", *run.best->val_loss),
                     static_cast<double>(run.best->step)});
  }
  return line_chart_svg(
      {{.title = "Loss",
        .x = steps,
        .y = {.label = "nats per token"},
        .curves = {curve_of(run, "training, batch of each step",
                            [](const StepMetrics& s) { return s.train_loss; }),
                   curve_of(run, "validation", [](const StepMetrics& s) { return s.val_loss; })},
        .marks = marks},
       {.title = "Learning rate",
        .x = steps,
        .y = {.label = "learning rate", .low = 0},
        .curves = {curve_of(run, "learning rate",
                            [](const StepMetrics& s) { return s.learning_rate; })}},
       {.title = "Gradient norm",
        .x = steps,
        .y = {.label = "norm before clipping", .logarithmic = true},
        .curves = {curve_of(run, "gradient norm",
                            [](const StepMetrics& s) { return s.gradient_norm; })}},
       {.title = "Speed",
        .x = steps,
        .y = {.label = "tokens per second", .low = 0},
        .curves = {curve_of(run, "training, without evaluation",
                            [](const StepMetrics& s) { return s.tokens_per_s; })}}});
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  std::string folder;
  App app("plot_metrics",
          "Plots the curves of a training run: loss, learning rate, gradient norm and speed.\n"
          "The text format is a table of the evaluated steps.",
          {Format::kSvg});
  app.add_option("RUN", folder, "Folder of a run of train_gpt, finished or not")
      ->required()
      ->check(file_name())
      ->type_name("");
  app.footer("Example: plot_metrics run --format svg --output run.svg");
  return app.run(argc, argv, [&] {
    const Run run(read_steps(folder));
    return Report{.text = to_text(run), .json = to_json(run), .table = to_table(run), .svg = [run] {
                    return to_svg(run);
                  }};
  });
}
