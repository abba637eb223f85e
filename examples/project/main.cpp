#include <mini/attention.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  const auto q = torch::randn({2, 4, 10, 32});  // (B, nh, T, hs)
  const auto k = torch::randn({2, 4, 10, 32});  // (B, nh, T, hs)
  const auto v = torch::randn({2, 4, 10, 32});  // (B, nh, T, hs)
  const mini::AttentionOptions causal{.causal = mini::Causal::kLowerRight};

  const auto output = mini::scaled_dot_product_attention(q, k, v, causal);
  const auto steps = mini::attention_steps(q, k, v, causal);
  std::cout << "output " << output.sizes() << ", weights " << steps.weights.sizes() << '\n'
            << "equal outputs: " << std::boolalpha << output.allclose(steps.output, 1e-4, 1e-5)
            << '\n';
}
