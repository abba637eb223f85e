// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <set>

#include "figures/heat_cells.h"
#include "figures/svg.h"

namespace mini {

using namespace detail;

namespace {

constexpr double kGap = 32;              // between maps
constexpr double kPageWidth = 1200;      // of the maps side by side
constexpr int64_t kLongestLabel = 16;    // characters
constexpr int64_t kMostCells = 128;      // per row or column
constexpr double kMostWithValues = 640;  // width and height of a map with numbers in its cells
constexpr double kValueHeight = 28;
constexpr double kSide = 512;  // approximate side of a map without numbers
constexpr double kLargestBlock = 24;
constexpr double kSmallestBlock = 4;
constexpr double kLegendCell = 4;
constexpr int kLegendCells = 60;
constexpr double kLegendHeight = 14;

// The layout of one map, relative to its upper left corner.
struct Panel {
  HeatCells cells;
  bool values;
  double cell_width, cell_height;
  double left, top;  // of the cells
  bool labels_upwards;

  double grid_width() const { return static_cast<double>(cells.columns) * cell_width; }
  double grid_height() const { return static_cast<double>(cells.rows) * cell_height; }
  double width() const {
    return std::max(left + grid_width(), text_width(cells.title, Svg::kTitleSize));
  }
  double height() const { return top + std::max(grid_height(), Svg::kTitleHeight); }
};

Panel panel_of(const HeatMap& map, const HeatScale& scale) {
  Panel panel{};
  panel.cells = binned(map, values_per_cell(map.values.size(0), kMostCells),
                       values_per_cell(map.values.size(1), kMostCells));
  for (auto* labels : {&panel.cells.row_labels, &panel.cells.column_labels}) {
    for (std::string& label : *labels) label = shortened(label, kLongestLabel);
  }
  const double value_width = text_width(scale.text_width() + 2);
  panel.values = static_cast<double>(panel.cells.columns) * value_width <= kMostWithValues &&
                 static_cast<double>(panel.cells.rows) * kValueHeight <= kMostWithValues;
  const auto longer_side =
      static_cast<double>(std::max({panel.cells.rows, panel.cells.columns, int64_t{1}}));
  const double block = std::clamp(std::floor(kSide / longer_side), kSmallestBlock, kLargestBlock);
  panel.cell_width = panel.values ? std::ceil(value_width) : block;
  panel.cell_height = panel.values ? kValueHeight : block;
  const double widest_column = text_width(widest(panel.cells.column_labels));
  panel.labels_upwards = widest_column > panel.cell_width - 2;
  const double title_height = panel.cells.title.empty() ? 0 : Svg::kTitleHeight;
  const double label_height = panel.labels_upwards ? widest_column : Svg::kTextSize;
  panel.left = std::ceil(text_width(widest(panel.cells.row_labels)) + Svg::kTextGap);
  panel.top = std::ceil(title_height + label_height + Svg::kTextGap);
  return panel;
}

// The smallest number of cells between two labels that do not overlap.
int64_t label_step(double cell) {
  return static_cast<int64_t>(std::ceil((Svg::kTextSize + 3) / cell));
}

void draw_labels(Svg& svg, const Panel& panel, double x, double y) {
  const HeatCells& cells = panel.cells;
  const int64_t row_step = label_step(panel.cell_height);
  for (int64_t i = 0; i < cells.rows; i += row_step) {
    svg.text(x + panel.left - Svg::kTextGap,
             y + panel.top + (static_cast<double>(i) + 0.5) * panel.cell_height,
             cells.row_labels[static_cast<size_t>(i)], {.anchor = "end", .fill = Svg::kFaint});
  }
  const int64_t column_step = panel.labels_upwards ? label_step(panel.cell_width) : 1;
  for (int64_t j = 0; j < cells.columns; j += column_step) {
    const std::string& label = cells.column_labels[static_cast<size_t>(j)];
    const double middle = x + panel.left + (static_cast<double>(j) + 0.5) * panel.cell_width;
    const double bottom = y + panel.top - Svg::kTextGap;
    if (panel.labels_upwards) {
      svg.text(middle, bottom, label, {.fill = Svg::kFaint, .upwards = true});
    } else {
      svg.text(middle, bottom - Svg::kTextSize / 2, label,
               {.anchor = "middle", .fill = Svg::kFaint});
    }
  }
}

// Marks NaN with a cross and an infinity with a triangle, because colour alone is ambiguous.
void draw_mark(Svg& svg, double value, double x, double y, double width, double height, Color ink) {
  const double half = 0.3 * std::min(width, height);
  const double middle = x + width / 2, center = y + height / 2;
  const auto at = [&](double right, double down) {
    return point(middle + right * half, center + down * half);
  };
  const double tip = value > 0 ? -1 : 1;
  svg.path(std::isnan(value) ? "M" + at(-1, -1) + "L" + at(1, 1) + "M" + at(-1, 1) + "L" + at(1, -1)
                             : "M" + at(-1, -tip) + "L" + at(1, -tip) + "L" + at(0, tip) + "Z",
           {.color = hex(ink)});
}

void draw_cells(Svg& svg, const Panel& panel, const HeatScale& scale, double x, double y) {
  const auto for_each_cell = [&](const auto& draw) {
    for (int64_t i = 0; i < panel.cells.rows; ++i) {
      for (int64_t j = 0; j < panel.cells.columns; ++j) {
        draw(panel.cells.at(i, j), x + panel.left + static_cast<double>(j) * panel.cell_width,
             y + panel.top + static_cast<double>(i) * panel.cell_height);
      }
    }
  };
  const double seam = panel.values ? 1 : 0;  // between large cells
  svg.open_sharp_edges();
  for_each_cell([&](double value, double left, double top) {
    svg.rectangle(left, top, panel.cell_width - seam, panel.cell_height - seam,
                  hex(scale.color(value)));
  });
  svg.close_sharp_edges();
  for_each_cell([&](double value, double left, double top) {
    const Color ink = ink_on(scale.color(value));
    if (panel.values) {
      svg.text(left + panel.cell_width / 2, top + panel.cell_height / 2, scale.text(value),
               {.anchor = "middle", .fill = hex(ink)});
    } else if (!std::isfinite(value)) {
      draw_mark(svg, value, left, top, panel.cell_width, panel.cell_height, ink);
    }
  });
  // The border separates white cells from the page.
  svg.path("M" + point(x + panel.left, y + panel.top) + 'h' + coordinate(panel.grid_width()) + 'v' +
               coordinate(panel.grid_height()) + 'h' + coordinate(-panel.grid_width()) + 'Z',
           {.color = Svg::kGrid});
}

void draw_panel(Svg& svg, const Panel& panel, const HeatScale& scale, double x, double y) {
  if (!panel.cells.title.empty()) {
    svg.text(x, y + Svg::kTitleHeight / 2 - 2, panel.cells.title,
             {.size = Svg::kTitleSize, .bold = true});
  }
  if (panel.cells.values.empty()) {
    svg.text(x, y + panel.top, empty_note(panel.cells), {});
    return;
  }
  draw_labels(svg, panel, x, y);
  draw_cells(svg, panel, scale, x, y);
}

// Draws the scale and the counts of values that are not finite.  Returns its right end.
double draw_legend(Svg& svg, const HeatScale& scale, double y) {
  const double middle = y + kLegendHeight / 2;
  double x = Svg::kMargin;
  const auto write = [&](const std::string& text) {
    svg.text(x, middle, text, {});
    x += text_width(text);
  };
  if (scale.has_values()) {
    write(scale.text(scale.value_at(0)));
    x += Svg::kTextGap;
    svg.open_sharp_edges();
    for (int i = 0; i < kLegendCells; ++i) {
      const double position = i / (kLegendCells - 1.0);
      svg.rectangle(x + i * kLegendCell, y, kLegendCell, kLegendHeight,
                    hex(scale.color(scale.value_at(position))));
    }
    svg.close_sharp_edges();
    x += kLegendCells * kLegendCell + Svg::kTextGap;
    write(scale.text(scale.value_at(1)));
    x += kGap;
  }
  for (const HeatScale::OffScale& kind : scale.off_scale()) {
    if (kind.count > 0) {
      svg.rectangle(x, y, kLegendHeight, kLegendHeight, hex(kind.color));
      draw_mark(svg, kind.value, x, y, kLegendHeight, kLegendHeight, ink_on(kind.color));
      x += kLegendHeight + Svg::kTextGap;
      write(kind.text());
      x += kGap;
    }
  }
  return x - kGap;
}

}  // namespace

std::string heat_map_svg(const std::vector<HeatMap>& maps, const HeatMapOptions& options) {
  const std::vector<HeatMap> whole = printable_maps("heat_map_svg", maps, options);
  const HeatScale scale(whole, options);
  Svg svg;
  std::set<std::string> notes;
  double x = Svg::kMargin, y = Svg::kMargin, right = 0, bottom = Svg::kMargin;
  for (const HeatMap& map : whole) {
    const Panel panel = panel_of(map, scale);
    if (x > Svg::kMargin && x + panel.width() > kPageWidth) {  // a new row of maps
      x = Svg::kMargin;
      y = bottom + kGap;
    }
    draw_panel(svg, panel, scale, x, y);
    x += panel.width();
    right = std::max(right, x);
    bottom = std::max(bottom, y + panel.height());
    x += kGap;
    notes.insert(binning_note(panel.cells));
  }
  notes.erase("");
  y = bottom + Svg::kMargin;
  for (const std::string& note : notes) {
    svg.text(Svg::kMargin, y + Svg::kTextSize / 2, note, {.fill = Svg::kFaint});
    right = std::max(right, Svg::kMargin + text_width(note));
    y += Svg::kTextSize + Svg::kTextGap;
  }
  right = std::max(right, draw_legend(svg, scale, y));
  return svg.document(right + Svg::kMargin, y + kLegendHeight + Svg::kMargin,
                      joined_titles(whole, "Heat map"));
}

std::string heat_map_svg(const HeatMap& map, const HeatMapOptions& options) {
  return heat_map_svg(std::vector<HeatMap>{map}, options);
}

}  // namespace mini
