// SPDX-License-Identifier: MIT
#include "mini/heat_map.h"

#include <sys/resource.h>

#include <limits>
#include <sstream>

#include "figures/color_scale.h"
#include "figures/display_text.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/support.h"
#include "support/terminal.h"

using namespace mini;
using namespace mini::detail;
using namespace mini::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const at::Tensor& small() {
  static const at::Tensor matrix = torch::tensor({{0.25, 0.5}, {0.75, 1.0}});
  return matrix;
}

// The grids of the lesson.
const std::vector<HeatMap>& lesson() {
  static const std::vector<HeatMap> maps = {{.values = torch::tensor({{0.43, 0.25, 0.30, 0.03},
                                                                      {0.42, 0.48, 0.07, 0.03},
                                                                      {0.03, 0.06, 0.39, 0.52},
                                                                      {0.22, 0.03, 0.50, 0.25}}),
                                             .title = "unscaled weights"},
                                            {.values = torch::tensor({{0.29, 0.26, 0.27, 0.18},
                                                                      {0.30, 0.30, 0.21, 0.19},
                                                                      {0.19, 0.21, 0.29, 0.31},
                                                                      {0.26, 0.18, 0.30, 0.26}}),
                                             .title = "scaled weights"}};
  return maps;
}

// Values that are not finite, and labels with markup, wide characters and control characters.
HeatMap awkward() {
  return {.values = torch::tensor(
              {{kNan, -1.0, 0.0}, {kInfinity, 2.5, -kInfinity}, {kNan, 1e-3, 4.0}}, at::kDouble),
          .title = "a < b & \"c\"",
          .row_labels = {"<bos>", "\u6f22\u5b57", "\U0001f600 \x1b[31m"},
          .column_labels = {"it's", "\"quoted\"", "a long label, to be cut"}};
}

std::string plain(const HeatMap& map, const HeatMapOptions& options = {}, int64_t width = 80) {
  return heat_map_text(map, options, {.width = width});
}

std::string colored(const HeatMap& map, const HeatMapOptions& options = {}, int64_t width = 80) {
  return heat_map_text(map, options, {.width = width, .colors = Colors::k24Bit});
}

std::string background(Color color) {
  return c10::str("\x1b[48;2;", int{color.red}, ';', int{color.green}, ';', int{color.blue}, ';');
}

int64_t widest_line(const std::string& text) {
  std::istringstream lines(without_colors(text));
  int64_t width = 0;
  for (std::string line; std::getline(lines, line);) {
    width = std::max(width, display_width(line));
  }
  return width;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("heat maps equal the reviewed fixtures byte for byte", "[heat_map]") {
  const auto check = [](const std::string& name, const std::string& drawn) {
    INFO(name);
    CHECK(drawn == golden_file(name, drawn));
  };
  for (const auto& [colors, name] :
       {std::pair(Colors::k24Bit, "24bit"), {Colors::k256, "256"}, {Colors::kNone, "plain"}}) {
    check(c10::str("heat_map_lesson_", name, ".txt"),
          heat_map_text(lesson(), {.low = 0}, {.width = 80, .colors = colors}));
    check(c10::str("heat_map_awkward_", name, ".txt"),
          heat_map_text(awkward(), {}, {.width = 80, .colors = colors}));
  }
  check("heat_map_lesson.svg", heat_map_svg(lesson(), {.low = 0}));
  check("heat_map_awkward.svg", heat_map_svg(awkward()));
  const auto waves = [](int64_t rows, int64_t columns) {
    return at::arange(1, rows + 1).outer(at::arange(1, columns + 1)).mul(0.05).sin();
  };
  check("heat_map_blocks.txt", colored({.values = waves(40, 60)}, {}, 60));
  check("heat_map_blocks.svg", heat_map_svg({.values = waves(18, 24)}));
}

TEST_CASE("heat_map_text and heat_map_svg draw a matrix without options", "[heat_map]") {
  std::ostringstream out;
  out << heat_map_text({small()}, {}, {});
  CHECK(out.str() ==
        "      0     1\n"
        "0  0.25  0.50\n"
        "1  0.75  1.00\n"
        "\n0.25 to 1.00\n");
  CHECK_THAT(heat_map_svg({small()}), ContainsSubstring(">0.75</text>"));
}

TEST_CASE("titles, labels, low, high and decimals change the heat map", "[heat_map]") {
  SECTION("title and labels") {
    const HeatMap map{.values = small(),
                      .title = "weights",
                      .row_labels = {"to", "be"},
                      .column_labels = {"or", "not"}};
    CHECK(plain(map) ==
          "weights\n"
          "      or   not\n"
          "to  0.25  0.50\n"
          "be  0.75  1.00\n"
          "\n0.25 to 1.00\n");
    const std::string svg = heat_map_svg(map);
    for (const char* text :
         {"<title>weights</title>", ">weights<", ">to<", ">be<", ">or<", ">not<"}) {
      CHECK_THAT(svg, ContainsSubstring(text));
    }
  }
  SECTION("low and high") {
    const std::string text = colored({small()}, {.low = 0.5, .high = 0.75});
    CHECK(count(text, background(color_at(0)) + "38;2;255;255;255m 0.25 ") == 1);
    CHECK(count(text, background(color_at(1)) + "38;2;0;0;0m 1.00 ") == 1);
    CHECK_THAT(text, ContainsSubstring("0.50 \x1b") && ContainsSubstring(" 0.75\n"));
    CHECK_THAT(plain({small()}, {.low = 0}), ContainsSubstring("\n0.00 to 1.00\n"));
    CHECK_THAT(plain({small()}, {.high = 2}), ContainsSubstring("\n0.25 to 2.00\n"));
    CHECK_THAT(plain({small()}, {.low = 3}), ContainsSubstring("\n3.00 to 3.00\n"));
    CHECK_THAT(heat_map_svg({small()}, {.low = 0.5, .high = 0.75}),
               ContainsSubstring("height=\"27\" fill=\"" + hex(color_at(0)) + "\"/>\n"));
  }
  SECTION("decimals") {
    CHECK_THAT(plain({small()}, {.decimals = 1}), ContainsSubstring("0  0.2  0.5\n"));
    CHECK_THAT(heat_map_svg({small()}, {.decimals = 4}), ContainsSubstring(">0.2500<"));
  }
}

TEST_CASE("several maps share one scale", "[heat_map]") {
  const std::string text =
      heat_map_text({HeatMap{at::full({1, 1}, 1.0)}, HeatMap{at::full({1, 1}, 2.0)}}, {},
                    {.width = 80, .colors = Colors::k24Bit});
  CHECK_THAT(text, ContainsSubstring(background(color_at(0)) + "38;2;255;255;255m 1.00 ") &&
                       ContainsSubstring(background(color_at(1)) + "38;2;0;0;0m 2.00 "));
  const std::string svg =
      heat_map_svg({HeatMap{at::full({1, 1}, 1.0)}, HeatMap{at::full({1, 1}, 2.0)}});
  CHECK_THAT(svg, ContainsSubstring(hex(color_at(0))) && ContainsSubstring(hex(color_at(1))));
}

TEST_CASE("heat maps accept every real dtype and non-contiguous values", "[heat_map]") {
  const std::string expected = plain({small()});
  CHECK(plain({small().to(at::kDouble)}) == expected);
  CHECK(plain({small().to(at::kHalf)}) == expected);
  CHECK(plain({small().to(at::kBFloat16)}) == expected);
  CHECK(plain({small().t().contiguous().t()}) == expected);
  CHECK(plain({small().clone().requires_grad_()}) == expected);
  CHECK_THAT(plain({torch::tensor({{1, -20}, {3, 4}})}), ContainsSubstring("0    1  -20\n"));
  CHECK_THAT(plain({torch::tensor({{true, false}})}), ContainsSubstring("0  1  0\n"));
}

TEST_CASE("a heat map may be empty or a single value", "[heat_map]") {
  for (const auto& [rows, columns] : {std::pair(0, 0), {0, 3}, {3, 0}}) {
    const HeatMap map{.values = at::zeros({rows, columns}), .title = "nothing"};
    const std::string words = c10::str(rows, " x ", columns, ": nothing to draw");
    CHECK(plain(map) == "nothing\n" + words + "\n");
    CHECK(colored(map) == "nothing\n" + words + "\n");
    CHECK_THAT(heat_map_svg(map), ContainsSubstring(">" + words + "<"));
  }
  CHECK(plain({at::full({1, 1}, 0.5)}) == "      0\n0  0.50\n\n0.50 to 0.50\n");
  CHECK(count(colored({at::full({1, 1}, 0.5)}), background(color_at(0.5))) ==
        25);  // one cell and 24 cells of the scale
  CHECK(count(heat_map_svg({at::full({1, 1}, 0.5)}), hex(color_at(0.5))) == 61);
}

TEST_CASE("NaN and infinities have their own colours and are counted", "[heat_map]") {
  const std::string text = colored(awkward());
  for (const Color color : {kNanColor, kPlusInfinityColor, kMinusInfinityColor}) {
    CHECK_THAT(text, ContainsSubstring(background(color)));
    CHECK_THAT(heat_map_svg(awkward()), ContainsSubstring(hex(color)));
  }
  CHECK_THAT(without_colors(text),
             ContainsSubstring("\u00d7  2 NaN    \u25b2  1 infinity\n\u25bc  1 -infinity\n"));
  CHECK_THAT(plain(awkward()),
             ContainsSubstring("-1.00 to 4.00    2 NaN    1 infinity    1 -infinity\n"));
  CHECK_THAT(heat_map_svg(awkward()),
             ContainsSubstring(">2 NaN<") && ContainsSubstring(">1 -infinity<"));
  CHECK(plain({at::full({1, 1}, NAN)}) == "      0\n0   nan\n\n1 NaN\n");
  // Cells without room for a number show a mark.
  const at::Tensor wide = at::zeros({2, 30});
  wide[0][3] = NAN;
  wide[1][4] = -INFINITY;
  CHECK_THAT(without_colors(colored({wide})),
             ContainsSubstring("\u00d7 ") && ContainsSubstring("\u25bc "));
}

TEST_CASE("the scale covers differences that overflow a double", "[heat_map]") {
  const std::string text = colored({torch::tensor({{-1.5e308, 0.0, 1.5e308}}, at::kDouble)});
  for (const double position : {0.0, 0.5, 1.0}) {
    CHECK_THAT(text, ContainsSubstring(background(color_at(position))));
  }
}

TEST_CASE("no line of a heat map is wider than the terminal", "[heat_map]") {
  torch::manual_seed(0);
  for (const int64_t width : {24, 25, 31, 40, 79, 80, 200}) {
    for (const auto& [rows, columns] :
         {std::pair(1, 1), {3, 2}, {2, 9}, {20, 20}, {5, 300}, {200, 100}}) {
      for (const Colors colors : {Colors::kNone, Colors::k256, Colors::k24Bit}) {
        INFO(rows << " x " << columns << " in " << width);
        HeatMap map{.values = at::randn({rows, columns}, at::kDouble).mul(1e4),
                    .title = "a title of some length"};
        for (int64_t i = 0; i < rows; ++i) map.row_labels.push_back("\u6f22\u5b57 label");
        const Terminal terminal{.width = width, .colors = colors};
        CHECK(widest_line(heat_map_text(map, {.decimals = 4}, terminal)) <= width);
        CHECK(widest_line(heat_map_text({map, map, map}, {.decimals = 4}, terminal)) <= width);
        map.values[0][0] = -1e300;
        map.values[0][columns - 1] = NAN;
        CHECK(widest_line(heat_map_text(map, {}, terminal)) <= width);
      }
    }
  }
  CHECK(widest_line(plain({small()}, {}, 1)) <= 24);
}

TEST_CASE("maps are side by side if all of them fit", "[heat_map]") {
  const auto titles_share_a_line = [](int64_t size, int64_t width, Colors colors) {
    const at::Tensor values = at::arange(size * size).reshape({size, size}).to(at::kFloat);
    return heat_map_text(
               {{.values = values, .title = "left"}, {.values = values, .title = "right"}}, {},
               {.width = width, .colors = colors})
                   .find("right\n") > 5 &&
           heat_map_text(
               {{.values = values, .title = "left"}, {.values = values, .title = "right"}}, {},
               {.width = width, .colors = colors})
                   .find("left\n") == std::string::npos;
  };
  CHECK(titles_share_a_line(4, 80, Colors::kNone));
  CHECK_FALSE(titles_share_a_line(10, 80, Colors::kNone));
  CHECK(titles_share_a_line(10, 80, Colors::k256));
  CHECK(titles_share_a_line(100, 80, Colors::k256));
  CHECK_FALSE(titles_share_a_line(10, 30, Colors::k256));
}

TEST_CASE("a large matrix is binned, each cell shows the largest value, and a note says so",
          "[heat_map]") {
  at::Tensor values = at::zeros({4000, 4000});
  values[1234][2345] = 0.875;
  const std::string text = plain({values}, {.low = 0});
  CHECK(count(text, "0.88") == 2);  // the cell and the end of the scale
  CHECK_THAT(text, ContainsSubstring("Each cell shows the largest of up to "));
  CHECK(count(text, "\n") <= 64);
  CHECK_THAT(colored({values}), ContainsSubstring("Each cell shows the largest of up to "));
  const std::string svg = heat_map_svg({values});
  CHECK(count(svg, "<rect ") <= 128 * 128 + 62);
  CHECK(count(svg, "fill=\"" + hex(color_at(1)) + "\"") == 2);  // the cell and the end of the scale
  CHECK_THAT(svg, ContainsSubstring(">Each cell shows the largest of up to 32 x 32 values.<"));
  CHECK(svg.size() < 2'000'000);

  values.slice(0, 0, 64).fill_(-INFINITY);
  values[3990][3990] = NAN;
  const std::string off = heat_map_svg({values});
  CHECK_THAT(off, ContainsSubstring(">1 NaN<") && ContainsSubstring(">256000 -infinity<"));
  CHECK(count(off, "fill=\"" + hex(kNanColor) + "\"") == 2);
  CHECK(count(off, "fill=\"" + hex(kMinusInfinityColor) + "\"") == 2 * 125 + 1);

  // A matrix of four rows keeps its rows.
  const std::string rows = plain({at::ones({4, 1000})});
  CHECK_THAT(rows, ContainsSubstring("largest of up to 1 x ") && ContainsSubstring("\n3  "));
}

TEST_CASE("drawing a large matrix does not copy it", "[heat_map]") {
  const auto peak_memory = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return 1024 * usage.ru_maxrss;
  };
  const at::Tensor values = at::ones({1, 1}).expand({8000, 8000});  // stores one float
  const int status = in_child([&] {
    at::set_num_threads(1);  // the child process has no other threads
    const auto before = peak_memory();
    plain({values});
    heat_map_svg({values});
    if (peak_memory() - before > 64'000'000) throw std::runtime_error("too much memory");
  });
  CHECK(status == 0);
}

TEST_CASE("a heat map rejects invalid maps and options", "[heat_map]") {
  const auto fails_with = [](const HeatMap& map, const HeatMapOptions& options,
                             const std::string& message) {
    CHECK_THROWS_WITH(heat_map_text(map, options, {}),
                      ContainsSubstring("heat_map_text: expected " + message));
    CHECK_THROWS_WITH(heat_map_svg(map, options),
                      ContainsSubstring("heat_map_svg: expected " + message));
  };
  fails_with({}, {}, "a matrix (rows, columns), got an undefined tensor");
  fails_with({at::zeros({2, 3, 4})}, {}, "a matrix (rows, columns), got [2, 3, 4]");
  fails_with({at::zeros({3})}, {}, "a matrix (rows, columns), got [3]");
  fails_with({at::zeros({2, 2}, at::kComplexFloat)}, {},
             "real or boolean values, got ComplexFloat");
  fails_with({.values = small(), .row_labels = {"one"}}, {},
             "one label per row, got 1 for a matrix of [2, 2]");
  fails_with({.values = small(), .column_labels = {"1", "2", "3"}}, {},
             "one label per column, got 3");
  fails_with({small()}, {.low = NAN}, "a finite low, got nan");
  fails_with({small()}, {.high = INFINITY}, "a finite high, got inf");
  fails_with({small()}, {.low = 2, .high = 1}, "low <= high, got 2 and 1");
  fails_with({small()}, {.decimals = 5}, "0 to 4 decimals, got 5");
  fails_with({small()}, {.decimals = -1}, "0 to 4 decimals, got -1");
  CHECK_THROWS_WITH(heat_map_svg(std::vector<HeatMap>{}),
                    ContainsSubstring("at least one map, got none"));
  CHECK_THROWS_WITH(
      plain({small()}, {}, 0),
      ContainsSubstring("heat_map_text: expected a terminal width of at least 1, got 0"));
}
