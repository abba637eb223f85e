// SPDX-License-Identifier: MIT
// Trains a GPT on a text file. A run that was stopped at any moment resumes bit for bit.
#include <fmt/format.h>
#include <signal.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>

#include "common/app.h"
#include "common/keep_memory.h"
#include "files/path_text.h"
#include "gpt/metrics_file.h"
#include "gpt/progress.h"
#include "gpt/run_options.h"
#include "gpt/training.h"
#include "mini/data_parallel.h"

namespace mini::app {
namespace {

using Clock = std::chrono::steady_clock;

// Set by Ctrl-C and SIGTERM. The training loop reads it after each step.
volatile std::sig_atomic_t stop_requested = 0;

void finish_step_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = 1; };
  action.sa_flags = SA_RESTART | SA_RESETHAND;  // a second signal ends the program immediately
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The measurements of one training step.
struct Step {
  double train_loss;
  std::optional<double> val_loss;
  double learning_rate;
  double gradient_norm;  // before clipping
  double tokens_per_s;
};

// Adds the gradients of the micro-batches and of their parts. Each is weighted by its fraction of
// the tokens, so that the sum is the gradient of one large batch. Returns the mean loss.
double accumulate_gradients(Training& t) {
  // Several threads would draw from the dropout generator in a varying order.
  const std::optional<int64_t> parts = t.config.dropout > 0.0 ? std::optional(1) : std::nullopt;
  double mean_loss = 0.0;
  for (int64_t micro_batch = 0; micro_batch < t.config.accumulate; ++micro_batch) {
    const Batch batch = t.windows.next();  // (B, T)
    const auto loss_of = [&](int64_t begin, int64_t end) {
      const at::Tensor targets = batch.targets.slice(0, begin, end);
      const double weight =
          static_cast<double>(targets.numel()) / static_cast<double>(t.tokens_per_step());
      return t.model->loss(batch.inputs.slice(0, begin, end), targets) * weight;
    };
    const at::Tensor loss =
        data_parallel_backward(t.model->parameters(), t.config.batch_size, loss_of, parts);
    mean_loss += loss.item<double>();
  }
  return mean_loss;
}

// Updates the weights once.
Step update(Training& t) {
  const Clock::time_point start = Clock::now();
  const double loss = accumulate_gradients(t);
  const double clip = t.config.clip > 0.0 ? t.config.clip : HUGE_VAL;
  const double norm = torch::nn::utils::clip_grad_norm_(t.model->parameters(), clip);
  if (!std::isfinite(loss) || !std::isfinite(norm)) {
    throw std::runtime_error(
        fmt::format("step {}: expected finite numbers, got loss {} and gradient norm {}; a smaller "
                    "--learning-rate may help",
                    t.state.step + 1, loss, norm));
  }
  const double learning_rate = t.optimizer.param_groups()[0].options().get_lr();
  t.optimizer.step();
  t.optimizer.zero_grad();
  t.schedule.step();
  ++t.state.step;
  return {.train_loss = loss,
          .val_loss = std::nullopt,
          .learning_rate = learning_rate,
          .gradient_norm = norm,
          .tokens_per_s = static_cast<double>(t.tokens_per_step()) / seconds_since(start)};
}

// Mean loss over the validation tokens. Each token but the first is a target once.
double evaluate(Training& t) {
  const torch::NoGradGuard no_grad;
  t.model->eval();
  double sum = 0.0;
  int64_t targets = 0;
  const auto add = [&](const Batch& batch) {
    const double mean = t.model->loss(batch.inputs, batch.targets).item<double>();
    sum += mean * static_cast<double>(batch.targets.numel());
    targets += batch.targets.numel();
  };
  for_each_window(t.tokens.validation, t.config.batch_size, t.config.block_size, add);
  t.model->train();
  return sum / static_cast<double>(targets);
}

Json metrics_line(const Training& t, const Step& step) {
  Json line = {{"step", t.state.step},
               {"tokens", t.state.step * t.tokens_per_step()},
               {"train_loss", step.train_loss}};
  if (step.val_loss) {
    line["val_loss"] = *step.val_loss;
  }
  line["learning_rate"] = step.learning_rate;
  line["gradient_norm"] = step.gradient_norm;
  line["tokens_per_s"] = std::round(step.tokens_per_s);
  line["seconds"] = std::round(1000 * t.state.seconds) / 1000;
  return line;
}

std::string greeting(const Training& t) {
  int64_t numbers = 0;
  for (const at::Tensor& parameter : t.model->parameters()) {
    numbers += parameter.numel();
  }
  const std::string start =
      t.config.init_from.empty() ? "the start" : fmt::format("'{}'", t.config.init_from);
  return fmt::format(
      "{} parameters; {} tokens to train on, {} to validate, vocabulary of {}; from {}",
      numbers < 10'000 ? fmt::format("{}", numbers)
                       : fmt::format("{:.2f} million", 1e-6 * static_cast<double>(numbers)),
      t.tokens.train.size(0), t.tokens.validation.size(0), t.tokenizer.vocab_size(),
      t.state.step == 0 ? start : fmt::format("step {}", t.state.step));
}

// Trains until the last step, or until a signal requests a stop.
void train(Training& t, const std::filesystem::path& run) {
  MetricsFile metrics(run / kMetricsFile, t.state.step);
  Progress progress;
  progress.note(greeting(t));
  if (t.state.step == t.config.steps) {
    progress.note(
        "the run is complete; to train its model further, start a new run with --init-from");
  }

  const Clock::time_point start = Clock::now();
  const int64_t first_step = t.state.step;
  const double seconds_before = t.state.seconds;
  bool saved = true;
  while (t.state.step < t.config.steps && stop_requested == 0) {
    Step step = update(t);
    const bool last = t.state.step == t.config.steps;
    if (t.state.step % t.config.eval_every == 0 || last) {
      step.val_loss = evaluate(t);
    }
    t.state.seconds = seconds_before + seconds_since(start);
    metrics.append(metrics_line(t, step));

    const auto steps_made = static_cast<double>(t.state.step - first_step);
    const auto steps_left = static_cast<double>(t.config.steps - t.state.step);
    progress.show(fmt::format("step {} of {}, loss {:.4f}, {:.0f} tokens/s, {} left", t.state.step,
                              t.config.steps, step.train_loss, step.tokens_per_s,
                              duration_text(seconds_since(start) / steps_made * steps_left)));
    saved = step.val_loss.has_value();
    if (step.val_loss) {
      progress.note(fmt::format("step {}: train_loss {:.4f}, val_loss {:.4f}, {:.0f} tokens/s, {}",
                                t.state.step, step.train_loss, *step.val_loss, step.tokens_per_s,
                                duration_text(t.state.seconds)));
      metrics.flush();  // first: a checkpoint must not be newer than the metrics on disk
      if (*step.val_loss < t.state.best_val_loss) {
        t.state.best_val_loss = *step.val_loss;
        t.save(run / "best");
      }
      t.save(run / "last");
    }
  }
  if (!saved) {
    metrics.flush();
    t.save(run / "last");
  }
}

std::string summary(const Training& t, const std::string& run) {
  const bool done = t.state.step == t.config.steps;
  std::string text =
      fmt::format("{} step {} of {}", done ? "done:" : "stopped at", t.state.step, t.config.steps);
  if (std::isfinite(t.state.best_val_loss)) {
    text += fmt::format(", best val_loss {:.4f}", t.state.best_val_loss);
  }
  return text +
         (done ? "\nto sample: generate_text --model " : "\nto resume: train_gpt --resume ") + run +
         '\n';
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  RunConfig config;
  std::string output, resume;
  CommandLine app("train_gpt", "Trains a GPT on a text file.");
  add_run_options(app, config);
  app.add_option("--output", output, "Folder of the new run")->check(file_name())->type_name("RUN");
  app.add_option("--resume", resume, "Resume the run in this folder, with its settings")
      ->check(file_name())
      ->type_name("RUN")
      ->excludes("--output");
  app.footer(
      "Ctrl-C or SIGTERM ends the run after the current step: train_gpt saves a\n"
      "checkpoint and exits with status 0. --resume resumes the run bit for bit.\n"
      "Example: train_gpt --data text.txt --output run");
  return app.run(argc, argv, [&] {
    keep_freed_memory();
    if (resume.empty() && (config.data.empty() || output.empty())) {
      throw UsageError("expected --data and --output, or --resume");
    }
    finish_step_on_signals();
    for (std::string* path : {&config.data, &config.init_from}) {
      if (!path->empty()) {
        *path = mini::detail::path_text(std::filesystem::absolute(*path).lexically_normal());
      }
    }
    std::unique_ptr<Training> training;
    std::optional<RunLock> lock;
    if (resume.empty()) {
      std::optional<TrainedModel> init;
      if (!config.init_from.empty()) {
        init = load_trained_model(mini::detail::path_of(config.init_from));
        config = config_with(init->model->options, config, app);
      }
      training = begin_run(output, new_config(config, app), init);
      lock.emplace(output);
    } else {
      lock.emplace(resume);
      training = resume_run(resume, resumed_config(resume, config, app));
    }
    const std::string run = resume.empty() ? output : resume;
    train(*training, run);
    write_to_stdout(summary(*training, run));
  });
}
