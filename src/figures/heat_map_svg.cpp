// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <set>

#include "figures/heat_cells.h"
#include "figures/svg.h"

namespace mini {

using namespace detail;

namespace {

constexpr double kMargin = 16;
constexpr double kGap = 32;          // between maps
constexpr double kPageWidth = 1200;  // what stands side by side
constexpr double kTitleHeight = 24;
constexpr double kLabelSize = 11;
constexpr double kLabelGap = 6;
constexpr int64_t kLongestLabel = 16;   // characters
constexpr int64_t kMostCells = 128;     // a row or column
constexpr double kRoomForValues = 640;  // a map no wider than this shows its values
constexpr double kValueHeight = 28;
constexpr double kSide = 512;  // of a map without values, about
constexpr double kLargestBlock = 24;
constexpr double kSmallestBlock = 4;
constexpr double kLegendCell = 4;
constexpr int kLegendCells = 60;
constexpr double kLegendHeight = 14;

double text_width(const std::string& text, double size) {
  return static_cast<double>(display_width(text)) * size * Svg::kCharacterWidth;
}

double widest(const std::vector<std::string>& labels) {
  double width = 0;
  for (const std::string& label : labels) {
    width = std::max(width, text_width(shortened(label, kLongestLabel), kLabelSize));
  }
  return width;
}

// One map and the place of everything in it, seen from its upper left corner.
struct Panel {
  HeatCells cells;
  bool values;
  double cell_width, cell_height;
  double left, top;     // of the cells
  double label_height;  // of the column labels
  bool labels_upwards;

  double grid_width() const { return static_cast<double>(cells.columns) * cell_width; }
  double grid_height() const { return static_cast<double>(cells.rows) * cell_height; }
  double width() const {
    return std::max(left + grid_width(), text_width(cells.title, kLabelSize + 2));
  }
  double height() const { return top + std::max(grid_height(), kTitleHeight); }
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Panel panel_of(const HeatMap& map, const HeatScale& scale) {
  Panel panel{};
  panel.cells = binned(map, std::max<int64_t>(1, ceil_div(map.values.size(0), kMostCells)),
                       std::max<int64_t>(1, ceil_div(map.values.size(1), kMostCells)));
  const double value_width =
      static_cast<double>(scale.text_width() + 2) * kLabelSize * Svg::kCharacterWidth;
  panel.values = static_cast<double>(panel.cells.columns) * value_width <= kRoomForValues &&
                 static_cast<double>(panel.cells.rows) * kValueHeight <= kRoomForValues;
  const auto longer_side =
      static_cast<double>(std::max({panel.cells.rows, panel.cells.columns, int64_t{1}}));
  const double block = std::clamp(std::floor(kSide / longer_side), kSmallestBlock, kLargestBlock);
  panel.cell_width = panel.values ? std::ceil(value_width) : block;
  panel.cell_height = panel.values ? kValueHeight : block;
  const double widest_column = widest(panel.cells.column_labels);
  panel.labels_upwards = widest_column > panel.cell_width - 2;
  panel.label_height = panel.labels_upwards ? widest_column : kLabelSize;
  panel.left = std::ceil(widest(panel.cells.row_labels) + kLabelGap);
  panel.top =
      std::ceil((panel.cells.title.empty() ? 0 : kTitleHeight) + panel.label_height + kLabelGap);
  return panel;
}

// Every label, or every second, third, ...: as many as there is room for.
int64_t label_step(double cell) { return static_cast<int64_t>(std::ceil((kLabelSize + 3) / cell)); }

void draw_labels(Svg& svg, const Panel& panel, double x, double y) {
  const HeatCells& cells = panel.cells;
  const int64_t row_step = label_step(panel.cell_height);
  for (int64_t i = 0; i < cells.rows; i += row_step) {
    svg.text(x + panel.left - kLabelGap,
             y + panel.top + (static_cast<double>(i) + 0.5) * panel.cell_height,
             shortened(cells.row_labels[static_cast<size_t>(i)], kLongestLabel),
             {.anchor = "end", .fill = Svg::kFaint});
  }
  const int64_t column_step = panel.labels_upwards ? label_step(panel.cell_width) : 1;
  for (int64_t j = 0; j < cells.columns; j += column_step) {
    const std::string label = shortened(cells.column_labels[static_cast<size_t>(j)], kLongestLabel);
    const double middle = x + panel.left + (static_cast<double>(j) + 0.5) * panel.cell_width;
    if (panel.labels_upwards) {
      svg.text(middle, y + panel.top - kLabelGap, label, {.fill = Svg::kFaint, .upwards = true});
    } else {
      svg.text(middle, y + panel.top - kLabelGap - kLabelSize / 2, label,
               {.anchor = "middle", .fill = Svg::kFaint});
    }
  }
}

// A cross or a triangle, at any size of cell: off the scale, colour alone says too little.
void draw_mark(Svg& svg, double value, double x, double y, double width, double height, Color ink) {
  const double half = 0.3 * std::min(width, height);
  const double middle = x + width / 2, center = y + height / 2;
  const auto point = [&](double right, double down) {
    return coordinate(middle + right * half) + ' ' + coordinate(center + down * half);
  };
  const double tip = value > 0 ? -1 : 1;
  svg.path(std::isnan(value)
               ? "M" + point(-1, -1) + "L" + point(1, 1) + "M" + point(-1, 1) + "L" + point(1, -1)
               : "M" + point(-1, -tip) + "L" + point(1, -tip) + "L" + point(0, tip) + "Z",
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
  const double seam = panel.values ? 1 : 0;  // between cells, where these are large
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
  // White and black cells need an edge against the page.
  svg.path("M" + coordinate(x + panel.left) + ' ' + coordinate(y + panel.top) + 'h' +
               coordinate(panel.grid_width()) + 'v' + coordinate(panel.grid_height()) + 'h' +
               coordinate(-panel.grid_width()) + 'Z',
           {.color = Svg::kGrid});
}

void draw_panel(Svg& svg, const Panel& panel, const HeatScale& scale, double x, double y) {
  if (!panel.cells.title.empty()) {
    svg.text(x, y + kTitleHeight / 2 - 2, panel.cells.title,
             {.size = kLabelSize + 2, .bold = true});
  }
  if (panel.cells.values.empty()) {
    svg.text(x, y + panel.top,
             std::to_string(panel.cells.rows) + " x " + std::to_string(panel.cells.columns) +
                 ": nothing to draw",
             {});
    return;
  }
  draw_labels(svg, panel, x, y);
  draw_cells(svg, panel, scale, x, y);
}

// The scale, and what is off it.  Returns its width.
double draw_legend(Svg& svg, const HeatScale& scale, double y) {
  const double middle = y + kLegendHeight / 2;
  double x = kMargin;
  const auto write = [&](const std::string& text) {
    svg.text(x, middle, text, {});
    x += text_width(text, kLabelSize);
  };
  if (scale.has_values()) {
    write(scale.text(scale.value_at(0)));
    x += kLabelGap;
    svg.open_sharp_edges();
    for (int i = 0; i < kLegendCells; ++i) {
      const double position = i / (kLegendCells - 1.0);
      svg.rectangle(x + i * kLegendCell, y, kLegendCell, kLegendHeight,
                    hex(scale.color(scale.value_at(position))));
    }
    svg.close_sharp_edges();
    x += kLegendCells * kLegendCell + kLabelGap;
    write(scale.text(scale.value_at(1)));
    x += kGap;
  }
  for (const HeatScale::OffScale& kind : scale.off_scale()) {
    if (kind.count > 0) {
      svg.rectangle(x, y, kLegendHeight, kLegendHeight, hex(kind.color));
      draw_mark(svg, kind.value, x, y, kLegendHeight, kLegendHeight, ink_on(kind.color));
      x += kLegendHeight + kLabelGap;
      write(std::to_string(kind.count) + ' ' + kind.name);
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
  std::string titles;
  double x = kMargin, y = kMargin, right = 0, bottom = kMargin;
  for (const HeatMap& map : whole) {
    const Panel panel = panel_of(map, scale);
    if (x > kMargin && x + panel.width() > kPageWidth) {  // a new row of maps
      x = kMargin;
      y = bottom + kGap;
    }
    draw_panel(svg, panel, scale, x, y);
    x += panel.width();
    right = std::max(right, x);
    bottom = std::max(bottom, y + panel.height());
    x += kGap;
    notes.insert(binning_note(panel.cells));
    titles += (titles.empty() || map.title.empty() ? "" : ", ") + map.title;
  }
  y = bottom + kMargin;
  for (const std::string& note : notes) {
    if (!note.empty()) {
      svg.text(kMargin, y + kLabelSize / 2, note, {.fill = Svg::kFaint});
      right = std::max(right, kMargin + text_width(note, kLabelSize));
      y += kLabelSize + kLabelGap;
    }
  }
  right = std::max(right, draw_legend(svg, scale, y));
  return svg.document(right + kMargin, y + kLegendHeight + kMargin,
                      titles.empty() ? "Heat map" : titles);
}

std::string heat_map_svg(const HeatMap& map, const HeatMapOptions& options) {
  return heat_map_svg(std::vector<HeatMap>{map}, options);
}

}  // namespace mini
