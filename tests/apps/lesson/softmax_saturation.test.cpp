// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdio>
#include <fstream>

#include "apps/program.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

void check_close(const json& actual, const std::vector<double>& expected, double tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::abs(actual[i].get<double>() - expected[i]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("softmax_saturation reproduces the lesson's first example", "[app][softmax_saturation]") {
  const json golden = json::parse(read_file(MINI_FIXTURES "/golden.json"))["saturation"];
  const json j = run_json("softmax_saturation");
  CHECK(j["scores"] == golden["scores"]);
  check_close(j["unscaled"], golden["unscaled"], 1e-7);
  check_close(j["scaled"], golden["divided_by_10"], 1e-7);
  check_close(j["scaled_slopes"], {0.0900 * 0.9100, 0.2447 * 0.7553, 0.6652 * 0.3348}, 1e-4);
  CHECK(std::abs(j["scaled_entropy"].get<double>() - 0.8324) < 1e-4);
  CHECK(std::abs(j["scaled_entropy_share"].get<double>() - 0.8324 / std::log(3.0)) < 1e-4);
  CHECK(j["unscaled_peak"] == j["unscaled"][2]);

  const std::string text = run("softmax_saturation").out;
  CHECK_THAT(text, ContainsSubstring("0.0000   0.0000   1.0000"));
  CHECK_THAT(text, ContainsSubstring("0.0900   0.2447   0.6652"));
  CHECK_THAT(text, ContainsSubstring("The unscaled softmax is saturated: most of its weights "
                                     "hardly change with the scores.\nThe scaled softmax is not"));
  CHECK_THAT(run("softmax_saturation --divisor 1").out,
             ContainsSubstring("Both softmaxes are saturated: most of their weights hardly "));
  CHECK_THAT(run("softmax_saturation --scores 1,2 --divisor 2").out,
             ContainsSubstring("Neither softmax is saturated at these scores"));
  CHECK_THAT(run("softmax_saturation --scores 1,2 --divisor 0.01").out,
             ContainsSubstring("The scaled softmax is saturated: most of its weights "
                               "hardly change with the scores.\nThe unscaled softmax is not"));
}

TEST_CASE("softmax_saturation accepts any finite scores and divisor", "[app][softmax_saturation]") {
  const json j = run_json("softmax_saturation --scores -1,2.5,1e2,0 --divisor 4");
  CHECK(j["scores"] == json({-1.0, 2.5, 100.0, 0.0}));
  const double e[] = {std::exp(-25.25), std::exp(-24.375), 1.0, std::exp(-25.0)};
  const double sum = e[0] + e[1] + e[2] + e[3];
  check_close(j["scaled"], {e[0] / sum, e[1] / sum, e[2] / sum, e[3] / sum}, 1e-12);
  CHECK(run_json("softmax_saturation --scores 7")["unscaled"] == json({1.0}));
  check_close(run_json("softmax_saturation --divisor=-10")["scaled"], {0.6652, 0.2447, 0.0900},
              1e-4);
  CHECK_THAT(run("softmax_saturation --format csv").out,
             ContainsSubstring("\ndivisor,,,,10.0\n") && ContainsSubstring("\nscaled,,2,,0.66524"));
}

TEST_CASE("softmax_saturation draws weights and slopes over the divisor",
          "[app][softmax_saturation]") {
  const Run done = run("softmax_saturation --format svg");
  CHECK(done.status == 0);
  for (const char* text :
       {">Softmax weights<", ">Slope of each weight<", ">score 10<", ">score 20<", ">score 30<",
        ">divided by 10<", ">divisor<", ">slope w (1 - w)<"}) {
    CHECK_THAT(done.out, ContainsSubstring(text));
  }
  CHECK(done.out.find("left out") == std::string::npos);
  // The points of the curves at the mark; both charts reach from y = 82 down to y = 302.
  const auto crosses = [&](const std::string& x, double share) {
    char point[64];
    std::snprintf(point, sizeof point, "L%s %.2f", x.c_str(), 302 - 220 * share);
    return done.out.find(point) != std::string::npos;
  };
  for (const double weight : {0.0900306, 0.2447285, 0.6652410}) {
    CHECK(crosses("274.9", weight));
    CHECK(crosses("790.2", 4 * weight * (1 - weight)));  // of slopes up to 1/4
  }
  CHECK_THAT(run("softmax_saturation --format svg --divisor=-4").out,
             ContainsSubstring(">minus the divisor<") && ContainsSubstring(">divided by -4<"));
  CHECK(run("softmax_saturation --format svg --scores 1,2,3").out != done.out);
  CHECK(run("softmax_saturation --format svg --divisor 1e300").status == 0);
}

TEST_CASE("softmax_saturation reports wrong usage in one line", "[app][softmax_saturation]") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--divisor 0", "--divisor: expected a finite number with a finite inverse, got '0'"},
      {"--divisor inf", "--divisor: expected a finite number with a finite inverse, got 'inf'"},
      {"--divisor nan", "--divisor: expected a finite number with a finite inverse, got 'nan'"},
      {"--scores 1,x", "--scores: expected a finite number, got 'x'"},
      {"--scores 1,inf", "--scores: expected a finite number, got 'inf'"},
      {"--scores 1,,2", "--scores: expected a finite number, got ''"},
      {"--scores 1,2,", "--scores: expected a finite number, got ''"},
      {"--scores ''", "--scores: expected a finite number, got ''"},
      {"--scores \"$(printf '1,\\033[31m\\177')\"",
       "got '?[31m?'"},  // no control characters reach the terminal
      {"--scores", "--scores"},
      {"--format html", "--format: expected text, json, csv or svg, got 'html'"},
      {"--scores 1e308 --divisor 1e-3",
       "--scores: expected scores that are finite when divided by --divisor"},
  };
  for (const auto& [arguments, message] : wrong) {
    INFO(arguments);
    const Run failed = run("softmax_saturation " + arguments);
    CHECK(failed.status == 2);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring(message));
  }
}
