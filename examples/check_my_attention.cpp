#include <mini/conformance.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>

// Attention as it is often written: hidden keys get a large negative score.
at::Tensor my_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const mini::AttentionOptions& options) {
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
  auto scores = torch::matmul(q, k.transpose(-2, -1)) * scale;  // (..., T, T)
  if (options.mask) {
    const auto& mask = *options.mask;
    scores = mask.scalar_type() == torch::kBool ? scores.masked_fill(mask.logical_not(), -1e4)
                                                : scores + mask;
  }
  return torch::matmul(torch::softmax(scores, -1), v);
}

int main() {
  mini::ConformanceOptions options;
  options.features = {.upper_left = false,
                      .lower_right = false,
                      .grouped_queries = false,
                      .dropout = false,
                      .half_types = false};
  int passed = 0, failed = 0;
  for (const auto& point : mini::check_attention(my_attention, options)) {
    point.passed ? ++passed : ++failed;
    if (!point.passed) {
      std::cout << point.rule << ": expected " << point.expected << ", got " << point.actual
                << '\n';
    }
  }
  std::cout << passed << " points passed, " << failed << " failed\n";
}
