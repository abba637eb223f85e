// SPDX-License-Identifier: MIT
#include "mini/line_chart.h"

#include <cmath>
#include <numeric>

#include "support/golden.h"
#include "support/support.h"

using namespace mini;
using namespace mini::test;

namespace {

LineChart loss() {
  return {.title = "Loss of a < small > model",
          .x = {.label = "step"},
          .y = {.label = "cross-entropy (nats)"},
          .curves = {{"training", {0, 100, 200, 300, 400}, {4.2, 3.1, 2.6, 2.3, 2.2}},
                     {"validation", {0, 200, 400}, {4.2, 2.8, 2.5}},
                     {"uniform", {0, 400}, {4.17, 4.17}, /*reference=*/true}},
          .marks = {{"best", 380}}};
}

LineChart slopes() {
  return {.title = "Slope",
          .x = {.label = "head size", .logarithmic = true, .ticks = {8, 16, 32, 64, 1024}},
          .y = {.label = "slope", .logarithmic = true},
          .curves = {{"without", {8, 16, 32, 64, 1024}, {6e-3, 8e-4, NAN, 1e-7, 0}},
                     {"divided", {8, 16, 32, 64, 1024}, {0.04, 0.04, 0.04, 0.04, 0.04}}}};
}

bool has_text(const std::string& svg, const std::string& text) {
  return svg.find(">" + text + "</text>") != std::string::npos;
}

LineChart of_values(const std::vector<double>& y, bool logarithmic = false) {
  std::vector<double> x(y.size());
  std::iota(x.begin(), x.end(), 1.0);
  return {.y = {.logarithmic = logarithmic}, .curves = {{"curve", x, y}}};
}

}  // namespace

TEST_CASE("line charts equal the reviewed fixtures byte for byte", "[line_chart]") {
  const std::string one = line_chart_svg(loss()), two = line_chart_svg({loss(), slopes(), {}});
  CHECK(one == golden_file("line_chart.svg", one));
  CHECK(two == golden_file("line_charts.svg", two));
}

TEST_CASE("a line chart shows its title and the names of axes, curves and marks", "[line_chart]") {
  const std::string svg = line_chart_svg(loss());
  for (const char* text : {"Loss of a &lt; small &gt; model", "step", "cross-entropy (nats)",
                           "training", "validation", "uniform", "best"}) {
    CHECK(has_text(svg, text));
  }
  CHECK_THAT(svg, ContainsSubstring("<title>Loss of a &lt; small &gt; model</title>"));
}

TEST_CASE("the ticks of an axis are at a few round numbers", "[line_chart]") {
  const std::string svg = line_chart_svg(of_values({0.13, 0.87}));
  for (const char* tick : {"0", "0.2", "0.4", "0.6", "0.8", "1"}) CHECK(has_text(svg, tick));
  CHECK(has_text(line_chart_svg(of_values({-3e6, 5e6})), "\u22124\u00b710\u2076") == false);
  CHECK(has_text(line_chart_svg(of_values({0, 5e6})), "2\u00b710\u2076"));
  const std::string powers = line_chart_svg(of_values({1e-26, 1e-4}, /*logarithmic=*/true));
  CHECK(has_text(powers, "10\u207b\u2078"));
  CHECK(has_text(powers, "10\u207b\u00b2\u2074"));
  const std::string few = line_chart_svg(of_values({1, 100}, /*logarithmic=*/true));
  for (const char* tick : {"1", "2", "5", "10", "20", "50", "100"}) CHECK(has_text(few, tick));
  CHECK(has_text(line_chart_svg(of_values({30, 34}, /*logarithmic=*/true)), "32"));
}

TEST_CASE("ticks, low, high and logarithmic change the axis", "[line_chart]") {
  LineChart chart = of_values({1, 2, 3});
  SECTION("ticks") {
    chart.x.ticks = {1, 2.5, 7};
    const std::string svg = line_chart_svg(chart);
    CHECK(has_text(svg, "2.5"));
    CHECK_FALSE(has_text(svg, "7"));  // beyond the end of the axis
  }
  SECTION("low and high") {
    chart.y.low = 0;
    chart.y.high = 1000;
    CHECK(has_text(line_chart_svg(chart), "1000"));
    chart.y.high = 0.5;  // all points are above it and are clipped
    CHECK(has_text(line_chart_svg(chart), "0.5"));
  }
  SECTION("logarithmic") {
    const std::string before = line_chart_svg(chart);
    chart.x.logarithmic = true;
    CHECK(line_chart_svg(chart) != before);
  }
}

TEST_CASE("points that an axis cannot show are left out and counted", "[line_chart]") {
  CHECK(
      has_text(line_chart_svg(of_values({1, NAN, 3, INFINITY})), "2 points left out: not finite"));
  CHECK(has_text(line_chart_svg(of_values({1, 0, 3}, true)),
                 "1 point left out: not finite, or not above 0 on a logarithmic axis"));
  CHECK(line_chart_svg(of_values({1, 2})).find("left out") == std::string::npos);
  // The curve has a gap: its path has two parts.
  const std::string gap = line_chart_svg(of_values({1, 2, NAN, 2, 1}));
  const size_t path = gap.find("stroke=\"#0072b2\"", gap.find("<circle") - 200);
  const size_t begin = gap.rfind("d=\"", path);
  const std::string data = gap.substr(begin, path - begin);
  CHECK(std::count(data.begin(), data.end(), 'M') == 2);
  for (const bool logarithmic : {false, true}) {
    CHECK(has_text(line_chart_svg(of_values({}, logarithmic)), "no points"));
    CHECK(has_text(line_chart_svg(of_values({NAN}, logarithmic)), "no points"));
  }
}

TEST_CASE("an axis can cover every finite range", "[line_chart]") {
  for (const std::vector<double>& y : std::vector<std::vector<double>>{{5, 5},
                                                                       {0, 0},
                                                                       {-7},
                                                                       {1e15, 1e15 + 0.125},
                                                                       {-1.7e308, 1.7e308},
                                                                       {1e-310, 2e-310},
                                                                       {1e300}}) {
    INFO(y.front());
    const std::string svg = line_chart_svg(of_values(y));
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
    CHECK(svg.size() < 20'000);
  }
}

TEST_CASE("points that share a pixel column are reduced to their extremes", "[line_chart]") {
  std::vector<double> y(200'000, 0.5);
  y[77'777] = 1.0;  // visible, although its pixel column has hundreds of points
  const std::string svg = line_chart_svg(of_values(y));
  CHECK(svg.size() < 100'000);
  CHECK(svg.find("<circle") == std::string::npos);
  CHECK(line_chart_svg(of_values(std::vector<double>(200'000, 0.5))) != svg);
}

TEST_CASE("curves differ in colour and dashes, and a reference is a wide light line",
          "[line_chart]") {
  LineChart chart;
  for (int i = 0; i < 7; ++i) chart.curves.push_back({"c", {0, 1}, {0.0, i * 1.0}});
  chart.curves.push_back({"r", {0, 1}, {0, 9}, /*reference=*/true});
  const std::string svg = line_chart_svg(chart);
  for (const char* style :
       {"#0072b2\" stroke-width=\"2\"/", "#d55e00\" stroke-width=\"2\" stroke-dasharray=\"7 3\"",
        "#009e73\" stroke-width=\"2\" stroke-dasharray=\"2 2\"", "#c4ccd4\" stroke-width=\"6\"/"}) {
    CHECK_THAT(svg, ContainsSubstring(style));
  }
}

TEST_CASE("a line chart rejects invalid curves and axes", "[line_chart]") {
  const auto fails_with = [](const LineChart& chart, const std::string& message) {
    CHECK_THROWS_WITH(line_chart_svg(chart),
                      ContainsSubstring("line_chart_svg: expected " + message));
  };
  fails_with({.curves = {{"loss", {1, 2}, {1}}}},
             "as many x as y values in curve 'loss', got 2 and 1");
  fails_with({.x = {.low = NAN}}, "a finite low end of the x axis, got nan");
  fails_with({.y = {.high = INFINITY}}, "a finite high end of the y axis, got inf");
  fails_with({.y = {.low = 2.0, .high = 2.0}}, "low < high on the y axis, got 2 and 2");
  fails_with({.x = {.logarithmic = true, .low = 0}},
             "a low end above 0 on the logarithmic x axis, got 0");
  CHECK_THROWS_WITH(line_chart_svg(std::vector<LineChart>{}),
                    ContainsSubstring("at least one chart, got none"));
}
