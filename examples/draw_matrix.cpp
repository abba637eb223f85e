#include <mini/heat_map.h>
#include <torch/torch.h>

#include <fstream>
#include <iostream>

// Draws a matrix on the terminal and into an SVG file.
int main() {
  const auto numbers = torch::arange(4.0);
  const auto weights = torch::softmax(torch::outer(numbers, numbers) / 2, -1);  // (4, 4)
  std::cout << mini::heat_map_text({weights});
  std::ofstream("weights.svg") << mini::heat_map_svg({weights});
}
