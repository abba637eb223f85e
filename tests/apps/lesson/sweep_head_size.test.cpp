// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "apps/program.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

TEST_CASE(
    "sweep_head_size measures a spread of sqrt(head size) without the division and of 1 with it",
    "[app][sweep_head_size]") {
  const json j = run_json("sweep_head_size");
  REQUIRE(j["sweep"].size() == 8);
  CHECK(j["keys"] == 16);
  CHECK(j["rows"] == 1000);
  for (const json& row : j["sweep"]) {
    INFO("head size " << row["head_size"]);
    const double root = std::sqrt(row["head_size"].get<double>());
    CHECK(std::abs(row["sqrt_head_size"].get<double>() - root) < 1e-12);
    CHECK(std::abs(row["unscaled"]["spread"].get<double>() / root - 1) < 0.03);
    CHECK(std::abs(row["scaled"]["spread"].get<double>() - 1) < 0.03);
    CHECK(row["unscaled"]["peak"] > row["scaled"]["peak"]);
    CHECK(row["unscaled"]["entropy"] < row["scaled"]["entropy"]);
    const double share = row["scaled"]["entropy"].get<double>() / std::log(16.0);
    CHECK(std::abs(row["scaled"]["entropy_share"].get<double>() - share) < 1e-5);
  }
  const json& at_32 = j["sweep"][2];
  CHECK(at_32["head_size"] == 32);
  CHECK(at_32["scaled"]["slope"].get<double>() > 100 * at_32["unscaled"]["slope"].get<double>());
}

TEST_CASE("each option of sweep_head_size changes what it names", "[app][sweep_head_size]") {
  const std::string few = "sweep_head_size --head-sizes 4,64 --rows 50";
  const json usual = run_json(few);
  CHECK(usual["sweep"].size() == 2);
  CHECK(usual["sweep"][1]["head_size"] == 64);
  CHECK(usual["rows"] == 50);
  CHECK(run_json(few) == usual);
  CHECK(run_json("sweep_head_size --head-sizes 64 --rows 50")["sweep"][0] == usual["sweep"][1]);
  CHECK_THAT(run("sweep_head_size --head-sizes 64 --rows 50").out,
             ContainsSubstring("Unscaled, the spread is "));
  CHECK(run_json(few + " --seed 1")["sweep"] != usual["sweep"]);
  const json two_keys = run_json(few + " --keys 2");
  CHECK(two_keys["sweep"][0]["scaled"]["peak"] > 0.6);  // the mean: the least is near 0.5,
  CHECK(two_keys["sweep"][0]["scaled"]["peak"] < 0.9);  // the largest near 1
  CHECK(run_json(few + " --keys 1")["sweep"][0]["scaled"]["entropy"] == 0.0);

  const std::string csv = run(few + " --format csv").out;
  CHECK_THAT(csv, ContainsSubstring("head_size,division,spread,peak,entropy,entropy_share,slope\n"
                                    "4,none,"));
  CHECK_THAT(csv, ContainsSubstring("\n64,sqrt(head_size),"));
  const double unscaled_spread = std::stod(csv.substr(csv.find("4,none,") + 7));
  CHECK(std::abs(unscaled_spread - usual["sweep"][0]["unscaled"]["spread"].get<double>()) < 1e-5);
  const std::string text = run(few).out;
  CHECK_THAT(text, ContainsSubstring("50 queries with 16 keys each"));
  CHECK_THAT(run("sweep_head_size --head-sizes 4 --rows 1 --keys 2").out,
             ContainsSubstring("1 query with 2 keys, all"));
  CHECK_THAT(run("sweep_head_size --head-sizes 4 --rows 2 --keys 1").out,
             ContainsSubstring("2 queries with 1 key each, all"));
  CHECK_THAT(text, ContainsSubstring("differs from sqrt(head size) by at most "));
  CHECK_THAT(text, ContainsSubstring("Even weights: peak 0.062, entropy 2.773, slope 5.9e-02."));
  CHECK_THAT(run(few + " --keys 1").out, ContainsSubstring("each weight is 1 whatever the score"));
}

TEST_CASE("sweep_head_size names the head sizes at which a softmax is saturated",
          "[app][sweep_head_size]") {
  const auto text = [](const std::string& sizes) {
    return run("sweep_head_size --rows 200 --head-sizes " + sizes).out;
  };
  CHECK_THAT(text("8,64,256"),
             ContainsSubstring("The unscaled softmax is saturated at head sizes 64, 256.\n"
                               "The divided softmax is not saturated at any of these head sizes."));
  CHECK_THAT(text("64"), ContainsSubstring("The unscaled softmax is saturated at head size 64.\n"));
  CHECK_THAT(text("8"), ContainsSubstring("The unscaled softmax is not saturated at any of"));
  CHECK_THAT(text("8"),
             ContainsSubstring("Saturated: a median slope below 5.9e-04, one hundredth"));
}

TEST_CASE("sweep_head_size draws each measure over the head size", "[app][sweep_head_size]") {
  const Run done = run("sweep_head_size --head-sizes 64,4 --rows 50 --format svg");
  CHECK(done.status == 0);
  for (const char* text : {">Spread of the scores<", ">Peak<", ">Entropy<", ">Slope w (1 - w)<",
                           ">without the division<", ">divided by \u221ad_k<", ">\u221ad_k<",
                           ">even weights of 16 keys<", ">4<", ">64<"}) {
    CHECK_THAT(done.out, ContainsSubstring(text));
  }
  CHECK(run("sweep_head_size --head-sizes 4,64 --rows 50 --format svg").out == done.out);
  CHECK(run("sweep_head_size --head-sizes 4 --keys 1 --rows 5 --format svg").status == 0);
}

TEST_CASE("sweep_head_size draws spread and slope on logarithmic axes, peak and entropy on linear",
          "[app][sweep_head_size]") {
  const std::string few = "sweep_head_size --head-sizes 4,16,64 --rows 50";
  const json sweep = run_json(few)["sweep"];
  std::istringstream svg(run(few + " --format svg").out);
  std::vector<std::array<double, 6>> curves;  // x, y of each head size
  for (std::string line; std::getline(svg, line);) {
    std::array<double, 6> p{};
    if (std::sscanf(line.c_str(), "<path d=\"M%lf %lfL%lf %lfL%lf %lf\"", &p[0], &p[1], &p[2],
                    &p[3], &p[4], &p[5]) == 6) {
      curves.push_back(p);
    }
  }
  REQUIRE(curves.size() == 12);  // in each chart the reference, unscaled, scaled
  const std::vector<std::string> figures = {"spread", "peak", "entropy", "slope"};
  for (std::size_t chart = 0; chart < 4; ++chart) {
    INFO(figures[chart]);
    const bool logarithmic = chart == 0 || chart == 3;
    const std::array<double, 6>& unscaled = curves[3 * chart + 1];
    CHECK(std::abs(unscaled[0] + unscaled[4] - 2 * unscaled[2]) <
          0.03);  // 16 is midway between 4 and 64
    const auto height = [&](int row) {
      const double value = sweep[row]["unscaled"][figures[chart]];
      return logarithmic ? std::log(value) : value;
    };
    const double drawn = (unscaled[3] - unscaled[1]) / (unscaled[5] - unscaled[1]);
    CHECK(std::abs(drawn - (height(1) - height(0)) / (height(2) - height(0))) < 1e-3);
  }
}

TEST_CASE("sweep_head_size measures all rows if it draws them in several blocks",
          "[app][sweep_head_size]") {
  // The keys of one query fill a block.
  const json row = run_json("sweep_head_size --head-sizes 4096 --keys 8192 --rows 2")["sweep"][0];
  torch::manual_seed(42);
  std::vector<at::Tensor> scores;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor q = torch::randn({4096}), k = torch::randn({8192, 4096});
    scores.push_back(k.mv(q));
  }
  const at::Tensor all = torch::stack(scores);
  CHECK(std::abs(row["unscaled"]["spread"].get<double>() / all.std().item<double>() - 1) < 1e-3);
  const double peak = (all / 64).softmax(-1).amax(-1).mean().item<double>();
  CHECK(std::abs(row["scaled"]["peak"].get<double>() / peak - 1) < 1e-3);
}

TEST_CASE("sweep_head_size measures no more rows than --rows if the last block is smaller",
          "[app][sweep_head_size]") {
  // The keys of four queries fill a block.
  const json row = run_json("sweep_head_size --head-sizes 4096 --keys 1024 --rows 6")["sweep"][0];
  torch::manual_seed(42);
  std::vector<at::Tensor> peaks;
  for (const int64_t rows : {4, 2}) {
    const at::Tensor q = torch::randn({rows, 1, 4096}), k = torch::randn({rows, 1024, 4096});
    peaks.push_back((k.matmul(q.mT()) / 64).softmax(1).amax(1));  // (rows, 1)
  }
  const double peak = torch::cat(peaks).mean().item<double>();
  CHECK(std::abs(row["scaled"]["peak"].get<double>() / peak - 1) < 1e-3);
}

TEST_CASE("sweep_head_size reports wrong usage in one line", "[app][sweep_head_size]") {
  for (const std::string arguments :
       {"--head-sizes 0", "--head-sizes 8,-8", "--head-sizes 8,x", "--head-sizes 8,,16", "--keys 0",
        "--rows -1", "--keys 4611686018427387904"}) {
    INFO(arguments);
    const Run failed = run("sweep_head_size " + arguments);
    CHECK(failed.status == 2);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("expected a whole number from 1 to 2^31 - 1, got "));
  }
}
