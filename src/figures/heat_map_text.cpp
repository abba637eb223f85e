// SPDX-License-Identifier: MIT
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <set>

#include "figures/heat_cells.h"

namespace mini {

using namespace detail;

namespace {

constexpr int64_t kLeastWidth = 24;   // of one cell with its number, or of the smallest scale
constexpr int64_t kGap = 4;           // columns between maps that are side by side
constexpr int64_t kBlock = 2;         // columns of a cell without a number, about a square
constexpr int64_t kFewBlocks = 8;     // the fewest blocks per row that show enough of a wide matrix
constexpr int64_t kLongestLabel = 8;  // of a column of blocks
constexpr int64_t kMostRows = 60;     // of cells
constexpr int64_t kSquareRows = 24;   // square bins do not reduce a map below this many rows
constexpr int64_t kLegendCells = 24;
constexpr int64_t kFewLegendCells = 4;
constexpr int64_t kAll = std::numeric_limits<int32_t>::max();

// Text that may contain color codes, and its width without them.
struct Line {
  std::string text;
  int64_t width = 0;

  Line() = default;
  explicit Line(const std::string& printable_text) { add(printable_text); }

  void add(const std::string& more, int64_t columns) {
    text += more;
    width += columns;
  }
  void add(const std::string& printable_text) {
    add(printable_text, display_width(printable_text));
  }
  void fill_up_to(int64_t columns) { add(spaces(columns - width)); }
};

struct Layout {
  int64_t width;       // of a map
  int64_t cell_width;  // of a cell
  bool values;         // cells show numbers
  bool side_by_side;
};

class Painter {
 public:
  Painter(const HeatScale& scale, const Terminal& terminal) : scale_(scale), terminal_(terminal) {}

  bool in_color() const { return terminal_.colors != Colors::kNone; }

  std::string paint(const std::string& text, Color background) const {
    return "\x1b[4" + code(background) + ";3" + code(ink_on(background)) + 'm' + text + "\x1b[0m";
  }

  std::string cell(double value, const Layout& layout) const {
    const std::string text = layout.values
                                 ? right_aligned(scale_.text(value), layout.cell_width - 1) + ' '
                                 : left_aligned(scale_.mark(value), layout.cell_width);
    return in_color() ? paint(text, scale_.color(value)) : text;
  }

  // The scale, and the counts of values that are not finite.
  std::vector<Line> legend() const {
    std::vector<Line> entries = scale_entries();
    for (const HeatScale::OffScale& kind : scale_.off_scale()) {
      if (kind.count > 0) {
        Line entry;
        if (in_color()) {
          entry.add(paint(left_aligned(kind.mark, kBlock), kind.color) + ' ', kBlock + 1);
        }
        entry.add(kind.text());
        entries.push_back(entry);
      }
    }
    return flow(entries);
  }

 private:
  std::string code(Color color) const {
    return terminal_.colors == Colors::k24Bit
               ? "8;2;" + std::to_string(color.red) + ';' + std::to_string(color.green) + ';' +
                     std::to_string(color.blue)
               : "8;5;" + std::to_string(xterm_index(color));
  }

  // The ends of the scale and, if there are colours, the colours between the ends.
  std::vector<Line> scale_entries() const {
    if (!scale_.has_values()) return {};
    const std::string low = scale_.text(scale_.value_at(0)), high = scale_.text(scale_.value_at(1));
    const int64_t room = terminal_.width - display_width(low + high) - 2;
    if (!in_color() || room < kFewLegendCells) {
      const Line both(low + " to " + high);
      return both.width <= terminal_.width ? std::vector{both}
                                           : std::vector{Line(low + " to"), Line(high)};
    }
    const int64_t cells = std::min(kLegendCells, room);
    Line line(low + ' ');
    for (int64_t i = 0; i < cells; ++i) {
      const double position = static_cast<double>(i) / static_cast<double>(cells - 1);
      line.add(paint(" ", scale_.color(scale_.value_at(position))), 1);
    }
    line.add(' ' + high);
    return {line};
  }

  // Puts as many entries on a line as fit.
  std::vector<Line> flow(const std::vector<Line>& entries) const {
    std::vector<Line> lines;
    for (const Line& entry : entries) {
      if (lines.empty() || lines.back().width + kGap + entry.width > terminal_.width) {
        lines.push_back(entry);
      } else {
        lines.back().add(spaces(kGap));
        lines.back().add(entry.text, entry.width);
      }
    }
    return lines;
  }

  const HeatScale& scale_;
  const Terminal& terminal_;
};

int64_t label_width(const std::vector<std::string>& labels, int64_t map_width) {
  return std::min(widest(labels), map_width / 4);
}

// Whether all columns of each map fit, or at least `enough` columns.
bool fits(const std::vector<HeatMap>& maps, const Layout& layout, int64_t enough) {
  return std::all_of(maps.begin(), maps.end(), [&](const HeatMap& map) {
    const int64_t cells = std::min(map.values.size(1), enough) * layout.cell_width;
    return label_width(map.row_labels, layout.width) + 1 + cells <= layout.width;
  });
}

// The layout that shows most. It prefers maps side by side, which are easiest to compare.
Layout choose_layout(const std::vector<HeatMap>& maps, int64_t value_width,
                     const Terminal& terminal) {
  const auto count = static_cast<int64_t>(maps.size());
  const int64_t share = (terminal.width - kGap * (count - 1)) / count;
  const int64_t cell = value_width + 2;
  const Layout values_beside{share, cell, true, true}, blocks_beside{share, kBlock, false, true};
  const Layout values_below{terminal.width, cell, true, false};
  const Layout blocks_below{terminal.width, kBlock, false, false};
  if (fits(maps, values_beside, kAll)) return values_beside;
  if (terminal.colors == Colors::kNone) return values_below;
  if (fits(maps, blocks_beside, kFewBlocks)) return blocks_beside;
  return fits(maps, values_below, kAll) ? values_below : blocks_below;
}

// Reduces the map to the columns that fit, and to at most kMostRows rows.
HeatCells fitted(const HeatMap& map, const Layout& layout) {
  const int64_t rows = map.values.size(0), columns = map.values.size(1);
  const int64_t room = layout.width - label_width(map.row_labels, layout.width) - 1;
  const int64_t columns_each =
      values_per_cell(columns, std::max<int64_t>(1, room / layout.cell_width));
  const int64_t rows_each = std::max(values_per_cell(rows, kMostRows),
                                     std::min(columns_each, values_per_cell(rows, kSquareRows)));
  return binned(map, rows_each, columns_each);
}

// The labels of columns with numbers, or of the columns of blocks whose label has room.
std::string column_labels(const HeatCells& map, const Layout& layout) {
  Line line;
  for (int64_t j = 0; j < map.columns; ++j) {
    const std::string& label = map.column_labels[static_cast<size_t>(j)];
    if (layout.values) {
      line.add(right_aligned(label, layout.cell_width - 1) + ' ');
      continue;
    }
    const int64_t start = j * layout.cell_width;
    const int64_t room = std::min(kLongestLabel, map.columns * layout.cell_width - start);
    if (j == 0 || start > line.width) {
      line.fill_up_to(start);
      line.add(shortened(label, room));
    }
  }
  return line.text;
}

std::vector<Line> lines_of(const HeatCells& map, const Layout& layout, const Painter& painter) {
  std::vector<Line> lines;
  if (!map.title.empty()) lines.emplace_back(shortened(map.title, layout.width));
  if (map.values.empty()) {
    lines.emplace_back(shortened(empty_note(map), layout.width));
    return lines;
  }
  const int64_t labels = label_width(map.row_labels, layout.width);
  lines.emplace_back(spaces(labels + 1) + column_labels(map, layout));
  for (int64_t i = 0; i < map.rows; ++i) {
    Line line(right_aligned(map.row_labels[static_cast<size_t>(i)], labels) + ' ');
    for (int64_t j = 0; j < map.columns; ++j) {
      line.add(painter.cell(map.at(i, j), layout), layout.cell_width);
    }
    lines.push_back(line);
  }
  return lines;
}

// Joins the maps line by line. Each map is as wide as its widest line.
std::vector<Line> beside(const std::vector<std::vector<Line>>& maps) {
  std::vector<Line> lines;
  int64_t start = 0;
  for (const std::vector<Line>& map : maps) {
    lines.resize(std::max(lines.size(), map.size()));
    int64_t end = start;
    for (size_t i = 0; i < map.size(); ++i) {
      lines[i].fill_up_to(start);
      lines[i].add(map[i].text, map[i].width);
      end = std::max(end, lines[i].width);
    }
    start = end + kGap;
  }
  return lines;
}

std::string text_of(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) {
    text += line.text.substr(0, line.text.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace

std::string heat_map_text(const std::vector<HeatMap>& maps, const HeatMapOptions& options,
                          const Terminal& terminal) {
  const std::vector<HeatMap> whole = printable_maps("heat_map_text", maps, options);
  TORCH_CHECK(terminal.width > 0, "heat_map_text: expected a terminal width of at least 1, got ",
              terminal.width);
  const Terminal page{.width = std::max(terminal.width, kLeastWidth), .colors = terminal.colors};
  const HeatScale scale(whole, options);
  const Painter painter(scale, page);
  const Layout layout = choose_layout(whole, scale.text_width(), page);

  std::vector<std::vector<Line>> grids;
  std::set<std::string> notes;
  for (const HeatMap& map : whole) {
    const HeatCells cells = fitted(map, layout);
    grids.push_back(lines_of(cells, layout, painter));
    notes.insert(binning_note(cells));
  }
  std::string text;
  if (layout.side_by_side) {
    text = text_of(beside(grids));
  } else {
    for (const std::vector<Line>& grid : grids) text += (text.empty() ? "" : "\n") + text_of(grid);
  }
  notes.erase("");
  std::string below;
  for (const std::string& note : notes) below += wrapped(note, page.width);
  below += text_of(painter.legend());
  return below.empty() ? text : text + '\n' + below;
}

std::string heat_map_text(const HeatMap& map, const HeatMapOptions& options,
                          const Terminal& terminal) {
  return heat_map_text(std::vector<HeatMap>{map}, options, terminal);
}

}  // namespace mini
