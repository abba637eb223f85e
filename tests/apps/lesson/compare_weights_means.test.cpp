// SPDX-License-Identifier: MIT
// The measures of a whole grid: they follow from the weights and the measures of the rows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "apps/program.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

double mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

std::string two_decimals(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", number);
  return text;
}

}  // namespace

TEST_CASE("compare_weights prints the means of the rows' entropies and peaks",
          "[app][compare_weights]") {
  for (const std::string options : {"", " --causal", " --scale -0.5", " --tokens 9 --seed 7"}) {
    INFO("compare_weights" << options);
    const json j = run_json("compare_weights" + options);
    for (const std::string name : {"unscaled", "scaled"}) {
      INFO(name);
      for (const auto& [of_rows, of_grid] :
           {std::pair("_entropies", "_mean_entropy"), {"_peaks", "_mean_peak"}}) {
        const double expected = mean(j[name + of_rows].get<std::vector<double>>());
        CHECK(std::abs(j[name + of_grid].get<double>() - expected) < 1e-6);
      }
      const auto peaks = j[name + "_peaks"].get<std::vector<double>>();
      CHECK(j[name + "_largest"] == *std::max_element(peaks.begin(), peaks.end()));
    }
    const std::string text = run("compare_weights" + options).out;
    CHECK_THAT(text, ContainsSubstring("The mean peak is " + two_decimals(j["unscaled_mean_peak"]) +
                                       " unscaled and " + two_decimals(j["scaled_mean_peak"]) +
                                       " scaled."));
    const double spread = j["scores_spread"], scale = j["scale"];
    CHECK_THAT(text,
               ContainsSubstring("spread of the scores: " + two_decimals(spread) + " unscaled, " +
                                 two_decimals(spread * std::abs(scale)) + " scaled\n"));
  }
}
