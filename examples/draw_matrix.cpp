#include <mini/heat_map.h>
#include <torch/torch.h>

#include <fstream>
#include <iostream>

// Draws a matrix on the terminal and into an SVG file.
int main() {
  const auto weights = torch::softmax(torch::arange(12.0).view({3, 4}) / 4, -1);
  std::cout << mini::heat_map_text({weights});
  std::ofstream("weights.svg") << mini::heat_map_svg({weights});
}
