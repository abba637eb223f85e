// SPDX-License-Identifier: MIT
#include "mini/line_chart.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "figures/chart_axis.h"
#include "figures/display_text.h"
#include "figures/svg.h"

namespace mini {

using namespace detail;

namespace {

constexpr size_t kChartsPerRow = 2;
constexpr double kChartWidth = 480;
constexpr double kColumnWidth = kChartWidth + 2 * Svg::kMargin;
constexpr double kPlotHeight = 220;
constexpr double kLineHeight = 18;
constexpr double kEdge = 4;          // around the plot, for the circles of points on its border
constexpr double kSampleWidth = 28;  // of a line in the legend
constexpr int64_t kLongestName = 48;
constexpr size_t kFewPoints = 24;  // a curve of at most this many points marks each with a circle
constexpr const char* kReferenceColor = "#c4ccd4";
constexpr const char* kMarkColor = "#6e7781";

struct Style {
  const char* color;
  const char* dashes;
};

// The colours of Okabe and Ito that have enough contrast with white. In greyscale, the dashes
// distinguish the curves.
constexpr std::array<Style, 6> kStyles = {{{"#0072b2", ""},
                                           {"#d55e00", "7 3"},
                                           {"#009e73", "2 2"},
                                           {"#cc79a7", "10 3 2 3"},
                                           {"#e69f00", "4 4"},
                                           {"#000000", "1 3"}}};

Svg::Stroke stroke_of(const LineChart& chart, size_t curve) {
  if (chart.curves[curve].reference) return {.color = kReferenceColor, .width = 6};
  const auto before =
      std::count_if(chart.curves.begin(), chart.curves.begin() + static_cast<std::ptrdiff_t>(curve),
                    [](const Curve& c) { return !c.reference; });
  const Style& style = kStyles[static_cast<size_t>(before) % kStyles.size()];
  return {.color = style.color, .width = 2, .dashes = style.dashes};
}

void check_axis(const char* name, const Axis& axis) {
  for (const auto& [end, value] : {std::pair("low", axis.low), {"high", axis.high}}) {
    TORCH_CHECK(std::isfinite(value.value_or(1.0)), "line_chart_svg: expected a finite ", end,
                " end of the ", name, " axis, got ", value.value_or(1.0));
    TORCH_CHECK(!axis.logarithmic || value.value_or(1.0) > 0, "line_chart_svg: expected a ", end,
                " end above 0 on the logarithmic ", name, " axis, got ", value.value_or(1.0));
  }
  TORCH_CHECK(!axis.low || !axis.high || *axis.low < *axis.high,
              "line_chart_svg: expected low < high on the ", name, " axis, got ",
              axis.low.value_or(0.0), " and ", axis.high.value_or(0.0));
}

void check(const LineChart& chart) {
  check_axis("x", chart.x);
  check_axis("y", chart.y);
  for (const Curve& curve : chart.curves) {
    TORCH_CHECK(curve.x.size() == curve.y.size(),
                "line_chart_svg: expected as many x as y values in curve '", curve.name, "', got ",
                curve.x.size(), " and ", curve.y.size());
  }
}

std::vector<double> all_values(const LineChart& chart, std::vector<double> Curve::*values) {
  std::vector<double> all;
  for (const Curve& curve : chart.curves) {
    all.insert(all.end(), (curve.*values).begin(), (curve.*values).end());
  }
  return all;
}

struct Point {
  double x, y;
};

// Keeps at most four points of each pixel column: the first, the smallest, the largest, the last.
std::vector<Point> thinned(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin, least = begin, most = begin;
    for (; end < points.size() && std::floor(points[end].x) == std::floor(points[begin].x); ++end) {
      least = points[end].y < points[least].y ? end : least;
      most = points[end].y > points[most].y ? end : most;
    }
    std::array<size_t, 4> places = {begin, std::min(least, most), std::max(least, most), end - 1};
    const auto last = std::unique(places.begin(), places.end());
    for (auto place = places.begin(); place != last; ++place) kept.push_back(points[*place]);
    begin = end;
  }
  return kept;
}

std::string short_text(const std::string& text) { return shortened(printable(text), kLongestName); }

struct LegendEntry {
  std::string name;
  double x;  // from the chart's left edge
  int line;
};

std::vector<LegendEntry> legend_of(const LineChart& chart) {
  std::vector<LegendEntry> entries;
  double x = 0;
  int line = 0;
  for (const Curve& curve : chart.curves) {
    const std::string name = short_text(curve.name);
    const double width = kSampleWidth + Svg::kTextGap + text_width(name);
    if (x > 0 && x + width > kChartWidth) {
      x = 0;
      ++line;
    }
    entries.push_back({name, x, line});
    x += width + 3 * Svg::kTextGap;
  }
  return entries;
}

// Height of the title, the legend and the names of the marks, which are above the plot.
double header_height(const LineChart& chart) {
  const std::vector<LegendEntry> legend = legend_of(chart);
  const int lines = (legend.empty() ? 0 : legend.back().line + 1) + (chart.marks.empty() ? 0 : 1);
  return Svg::kTitleHeight + kLineHeight * lines + Svg::kTextGap;
}

// One chart at its position in the image.
class Plot {
 public:
  Plot(const LineChart& chart, double left, double top, double header)
      : chart_(chart),
        x_axis_(chart.x, all_values(chart, &Curve::x)),
        y_axis_(chart.y, all_values(chart, &Curve::y)),
        outer_left_(left),
        outer_top_(top),
        top_(top + header) {
    double widest = 0;
    for (const Tick& tick : y_axis_.ticks()) widest = std::max(widest, text_width(tick.text));
    left_ = left + kLineHeight + widest + Svg::kTextGap;
    width_ = left + kChartWidth - left_ - Svg::kTextGap;
  }

  double bottom() const { return top_ + kPlotHeight + 3 * kLineHeight; }

  void draw(Svg& svg) const {
    svg.text(outer_left_, outer_top_ + kLineHeight / 2, short_text(chart_.title),
             {.size = Svg::kTitleSize, .bold = true});
    draw_legend(svg);
    draw_axes(svg);
    for (const ChartMark& mark : chart_.marks) draw_mark(svg, mark);
    svg.open_window(left_ - kEdge, top_ - kEdge, width_ + 2 * kEdge, kPlotHeight + 2 * kEdge);
    for (const bool reference : {true, false}) {  // reference curves first, below the others
      for (size_t i = 0; i < chart_.curves.size(); ++i) {
        if (chart_.curves[i].reference == reference) draw_curve(svg, i);
      }
    }
    svg.close_window();
    draw_note(svg);
  }

 private:
  double x_of(double value) const { return left_ + width_ * x_axis_.position(value); }
  double y_of(double value) const { return top_ + kPlotHeight * (1 - y_axis_.position(value)); }

  void draw_legend(Svg& svg) const {
    const std::vector<LegendEntry> legend = legend_of(chart_);
    for (size_t i = 0; i < legend.size(); ++i) {
      const double x = outer_left_ + legend[i].x;
      const double y = outer_top_ + Svg::kTitleHeight + kLineHeight * (legend[i].line + 0.5);
      svg.path("M" + point(x, y) + 'h' + coordinate(kSampleWidth), stroke_of(chart_, i));
      svg.text(x + kSampleWidth + Svg::kTextGap, y, legend[i].name, {});
    }
  }

  // Draws a grid line at each tick, and the tick labels that do not overlap.
  void draw_axes(Svg& svg) const {
    const double bottom = top_ + kPlotHeight;
    double free_from = 0;  // the next label may begin at this x
    for (const Tick& tick : x_axis_.ticks()) {
      const double x = x_of(tick.value), half = text_width(tick.text) / 2;
      draw_vertical(svg, x, {.color = Svg::kGrid});
      if (x - half >= free_from) {
        svg.text(x, bottom + kLineHeight / 2 + 1, tick.text,
                 {.anchor = "middle", .fill = Svg::kFaint});
        free_from = x + half + Svg::kTextGap;
      }
    }
    double free_to = bottom + Svg::kTextSize;  // the next label may end at this y
    for (const Tick& tick : y_axis_.ticks()) {
      const double y = y_of(tick.value);
      svg.path("M" + point(left_, y) + 'h' + coordinate(width_), {.color = Svg::kGrid});
      if (y + Svg::kTextSize / 2 <= free_to) {
        svg.text(left_ - Svg::kTextGap, y, tick.text, {.anchor = "end", .fill = Svg::kFaint});
        free_to = y - Svg::kTextSize / 2;
      }
    }
    svg.path("M" + point(left_, top_) + 'v' + coordinate(kPlotHeight) + 'h' + coordinate(width_),
             {});
    svg.text(left_ + width_ / 2, bottom + 1.5 * kLineHeight, printable(chart_.x.label),
             {.anchor = "middle"});
    svg.text(outer_left_ + Svg::kTextSize / 2, top_ + kPlotHeight / 2, printable(chart_.y.label),
             {.anchor = "middle", .upwards = true});
  }

  void draw_vertical(Svg& svg, double x, const Svg::Stroke& stroke) const {
    svg.path("M" + point(x, top_) + 'v' + coordinate(kPlotHeight), stroke);
  }

  void draw_mark(Svg& svg, const ChartMark& mark) const {
    if (!x_axis_.shows(mark.x) || x_of(mark.x) < left_ || x_of(mark.x) > left_ + width_) return;
    const double x = x_of(mark.x);
    draw_vertical(svg, x, {.color = kMarkColor, .dashes = "4 3"});
    const std::string name = short_text(mark.name);
    const double half = text_width(name) / 2;
    svg.text(std::clamp(x, outer_left_ + half, left_ + width_ - half), top_ - kLineHeight / 2, name,
             {.anchor = "middle", .fill = Svg::kFaint});
  }

  bool shows(const Curve& curve, size_t i) const {
    return x_axis_.shows(curve.x[i]) && y_axis_.shows(curve.y[i]);
  }

  void draw_curve(Svg& svg, size_t index) const {
    const Curve& curve = chart_.curves[index];
    const Svg::Stroke stroke = stroke_of(chart_, index);
    std::string data;
    for (size_t begin = 0; begin < curve.x.size(); ++begin) {
      std::vector<Point> points;  // up to the next gap
      for (; begin < curve.x.size() && shows(curve, begin); ++begin) {
        points.push_back({x_of(curve.x[begin]), y_of(curve.y[begin])});
      }
      if (points.size() == 1) {  // a line of one point is invisible
        svg.circle(points[0].x, points[0].y, 2, stroke.color);
      }
      const char* command = "M";
      for (const Point& p : thinned(points)) {
        data += command + point(p.x, p.y);
        command = "L";
      }
    }
    if (!data.empty()) svg.path(data, stroke);
    if (!curve.reference && curve.x.size() <= kFewPoints) {
      for (size_t i = 0; i < curve.x.size(); ++i) {
        if (shows(curve, i)) svg.circle(x_of(curve.x[i]), y_of(curve.y[i]), 3, stroke.color);
      }
    }
  }

  void draw_note(Svg& svg) const {
    size_t points = 0, left_out = 0;
    for (const Curve& curve : chart_.curves) {
      for (size_t i = 0; i < curve.x.size(); ++i) ++(shows(curve, i) ? points : left_out);
    }
    if (points == 0) {
      svg.text(left_ + width_ / 2, top_ + kPlotHeight / 2, "no points",
               {.anchor = "middle", .fill = Svg::kFaint});
    }
    if (left_out > 0) {
      const bool logarithmic = chart_.x.logarithmic || chart_.y.logarithmic;
      svg.text(left_, top_ + kPlotHeight + 2.5 * kLineHeight,
               std::to_string(left_out) + (left_out == 1 ? " point" : " points") +
                   " left out: not finite" +
                   (logarithmic ? ", or not above 0 on a logarithmic axis" : ""),
               {.fill = Svg::kFaint});
    }
  }

  const LineChart& chart_;
  ChartAxis x_axis_, y_axis_;
  double outer_left_, outer_top_;
  double left_ = 0, top_, width_ = 0;  // of the plot
};

}  // namespace

std::string line_chart_svg(const std::vector<LineChart>& charts) {
  TORCH_CHECK(!charts.empty(), "line_chart_svg: expected at least one chart, got none");
  for (const LineChart& chart : charts) check(chart);
  Svg svg;
  double top = Svg::kMargin;
  for (size_t first = 0; first < charts.size(); first += kChartsPerRow) {
    const size_t end = std::min(first + kChartsPerRow, charts.size());
    double header = 0, bottom = 0;
    for (size_t i = first; i < end; ++i) header = std::max(header, header_height(charts[i]));
    for (size_t i = first; i < end; ++i) {
      const double left = Svg::kMargin + static_cast<double>(i - first) * kColumnWidth;
      const Plot plot(charts[i], left, top, header);
      plot.draw(svg);
      bottom = plot.bottom();
    }
    top = bottom + Svg::kMargin;
  }
  const auto columns = static_cast<double>(std::min(charts.size(), kChartsPerRow));
  return svg.document(columns * kColumnWidth, top, joined_titles(charts, "Line chart"));
}

std::string line_chart_svg(const LineChart& chart) {
  return line_chart_svg(std::vector<LineChart>{chart});
}

}  // namespace mini
