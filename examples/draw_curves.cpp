#include <mini/line_chart.h>

#include <cmath>
#include <fstream>

// Draws the weight of one of two keys, and its slope, against the difference of their scores.
int main() {
  mini::Curve weight{.name = "weight w", .x = {}, .y = {}};
  mini::Curve slope{.name = "slope w (1 - w)", .x = {}, .y = {}};
  for (double difference = -8.0; difference <= 8.0; difference += 0.25) {
    const double w = 1.0 / (1.0 + std::exp(-difference));
    weight.x.push_back(difference);
    weight.y.push_back(w);
    slope.x.push_back(difference);
    slope.y.push_back(w * (1.0 - w));
  }
  std::ofstream("softmax.svg") << mini::line_chart_svg(
      mini::LineChart{.title = "Softmax of two scores",
                      .x = {.label = "difference of the scores"},
                      .curves = {weight, slope}});
}
