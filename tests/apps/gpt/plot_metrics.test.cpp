// SPDX-License-Identifier: MIT
#include <algorithm>

#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

const std::string kMetrics =
    R"({"step":1,"tokens":32,"train_loss":2.5,)"
    R"("learning_rate":0.001,"gradient_norm":1.5,"tokens_per_s":800.0,"seconds":0.04})"
    "\n"
    R"({"step":2,"tokens":64,"train_loss":2.25,"val_loss":2.125,)"
    R"("learning_rate":0.002,"gradient_norm":1.25,"tokens_per_s":900.0,"seconds":61.5})"
    "\n"
    R"({"step":3,"tokens":96,"train_loss":2.0,)"
    R"("learning_rate":0.003,"gradient_norm":1.0,"tokens_per_s":700.0,"seconds":62.0})"
    "\n"
    R"({"step":4,"tokens":128,"train_loss":1.75,"val_loss":2.375,)"
    R"("learning_rate":0.004,"gradient_norm":0.5,"tokens_per_s":600.0,"seconds":63.0})"
    "\n";

/// The folder of a run that contains only its measurements.
struct MeasuredRun : TemporaryFolder {
  explicit MeasuredRun(const std::string& metrics) { write_file(*this / "metrics.jsonl", metrics); }
  std::string plot(const std::string& options = "") const {
    return "plot_metrics '" + path().string() + "' " + options;
  }
};

}  // namespace

TEST_CASE("plot_metrics prints the evaluated steps", "[app][plot_metrics]") {
  const MeasuredRun measured(kMetrics);
  const Run done = run(measured.plot());
  INFO(done.err);
  CHECK(done.status == 0);
  CHECK(done.err.empty());
  CHECK(done.out == R"(4 steps, 128 tokens, 1:03

    step  train_loss  val_loss  learning_rate  gradient_norm  tokens/s      time
       2      2.2500    2.1250       2.00e-03          1.250       900      1:02
       4      1.7500    2.3750       4.00e-03          0.500       600      1:03

best val_loss 2.1250, at step 2
)");
}

TEST_CASE("plot_metrics writes every step as JSON and CSV", "[app][plot_metrics]") {
  const MeasuredRun measured(kMetrics);
  const json j = run_json(measured.plot());
  CHECK(j["best_step"] == 2);
  CHECK(j["best_val_loss"] == 2.125);
  const auto ordered =
      nlohmann::ordered_json::parse(run(measured.plot("--format json")).out)["metrics"];
  std::string lines;
  for (const auto& line : ordered) lines += line.dump() + '\n';
  CHECK(lines == kMetrics);
  const std::string csv = run(measured.plot("--format csv")).out;
  CHECK_THAT(csv, ContainsSubstring("step,tokens,train_loss,val_loss,learning_rate,gradient_norm,"
                                    "tokens_per_s,seconds\n1,32,2.5,,0.001,1.5,800.0,0.04\n"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 5);
}

TEST_CASE("plot_metrics draws the curves of a run", "[app][plot_metrics]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 12 --eval-every 5")).status == 0);
  const std::string file = folder.path_of("run.svg");
  const Run done = run("plot_metrics " + folder.path_of("run") + " --format svg --output " + file);
  INFO(done.err);
  REQUIRE(done.status == 0);
  CHECK(done.out.empty());
  const std::string svg = read_file(folder / "run.svg");
  for (const char* text : {">Loss<", ">validation<", ">Learning rate<", ">Gradient norm<",
                           ">Speed<", ">step<", ">best validation: "}) {
    CHECK_THAT(svg, ContainsSubstring(text));
  }
  size_t strokes = 0;  // the first curve of each chart, and its sample in the legend
  for (size_t at = 0; (at = svg.find("stroke=\"#0072b2\"", at)) != std::string::npos; ++at) {
    ++strokes;
  }
  CHECK(strokes == 2 * 4);
}

TEST_CASE("plot_metrics reads an unfinished run", "[app][plot_metrics]") {
  const MeasuredRun torn(kMetrics + R"({"step":5,"tok)");
  const Run done = run(torn.plot());
  CHECK(done.status == 0);
  CHECK(done.err == "the incomplete line after step 4 is ignored\n");
  CHECK(done.out == run(MeasuredRun(kMetrics).plot()).out);

  const MeasuredRun early(kMetrics.substr(0, kMetrics.find('\n') + 1));
  CHECK_THAT(run(early.plot()).out, ContainsSubstring("       1      2.5000                 "));
  CHECK_THAT(run(early.plot()).out, ContainsSubstring("not evaluated yet"));
  CHECK(run_json(early.plot())["best_step"].is_null());
  CHECK(run(early.plot("--format svg")).status == 0);
}

TEST_CASE("plot_metrics prints at most 20 rows", "[app][plot_metrics]") {
  std::string metrics;
  for (int step = 1; step <= 1000; ++step) {
    metrics += R"({"step":)" + std::to_string(step) +
               R"(,"tokens":1,"train_loss":2,"val_loss":2,"learning_rate":1,"gradient_norm":1,)" +
               R"("tokens_per_s":1,"seconds":1})" + '\n';
  }
  const MeasuredRun measured(metrics);
  const std::string text = run(measured.plot()).out;
  CHECK(std::count(text.begin(), text.end(), '\n') == 5 + 20);
  CHECK_THAT(text, ContainsSubstring("\n    1000      2.0000"));
}

TEST_CASE("plot_metrics ignores NaN when it chooses the best step", "[app][plot_metrics]") {
  std::string metrics = kMetrics;
  metrics.replace(metrics.find("2.125"), 5, "null");
  const MeasuredRun measured(metrics);
  CHECK_THAT(run(measured.plot()).out, ContainsSubstring("best val_loss 2.3750, at step 4"));
  CHECK_THAT(run(measured.plot()).out, ContainsSubstring("     nan "));
  CHECK(run_json(measured.plot())["metrics"][1]["val_loss"].is_null());
  CHECK_THAT(run(measured.plot("--format svg")).out, ContainsSubstring("1 point left out"));
}

TEST_CASE("plot_metrics prints hours, minutes and seconds", "[app][plot_metrics]") {
  std::string metrics = kMetrics;
  metrics.replace(metrics.find("63.0"), 4, "7265.0");
  CHECK_THAT(run(MeasuredRun(metrics).plot()).out,
             ContainsSubstring("4 steps, 128 tokens, 2:01:05\n"));
}

TEST_CASE("of steps with equal val_loss, plot_metrics calls the first one best",
          "[app][plot_metrics]") {
  std::string metrics = kMetrics;
  metrics.replace(metrics.find("2.375"), 5, "2.125");
  CHECK(run_json(MeasuredRun(metrics).plot())["best_step"] == 2);
}

TEST_CASE("plot_metrics explains bad input in one line", "[app][plot_metrics]") {
  const auto explains = [](const std::string& command, int status, const std::string& fragment) {
    const Run failed = run(command);
    INFO(command << ": " << failed.err);
    CHECK(failed.status == status);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring(fragment));
  };
  explains("plot_metrics", 2, "RUN is required");
  explains("plot_metrics ''", 2, "expected a file name");
  explains("plot_metrics run --format html", 2, "expected text, json, csv or svg, got 'html'");
  explains("plot_metrics /nowhere", 1,
           "'/nowhere' is not the folder of a training run: it has no metrics.jsonl");
  const auto explains_metrics = [&](const std::string& metrics, const std::string& fragment) {
    explains(MeasuredRun(metrics).plot(), 1, fragment);
  };
  explains_metrics("", "metrics.jsonl' has no finished step yet");
  explains_metrics("{\"step\":1", "has no finished step yet");
  explains_metrics(kMetrics + "nonsense\n", "metrics.jsonl', line 5: expected a JSON object");
  explains_metrics(kMetrics + kMetrics, "line 5: step: expected one above 4, got 1");
  std::string other = kMetrics;
  explains_metrics(other.replace(other.find("2.25"), 4, "[1]"),
                   "line 2: train_loss: expected a number, got [1]");
  other = kMetrics;
  explains_metrics(other.replace(other.find("tokens_per_s"), 6, "words_"),
                   "line 1: tokens_per_s: expected a value, got null");
}
