#include <mini/head.h>
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

// Each token has to report the average of all tokens: only attention lets it see the others.
int main() {
  torch::manual_seed(1);
  mini::Head head(mini::HeadOptions(/*n_embd=*/16, /*head_size=*/8).seed(42));
  torch::nn::Sequential model(head, torch::nn::Linear(8, 1));
  torch::optim::AdamW optimizer(model->parameters(), /*lr=*/0.02);

  const auto x = torch::randn({32, 6, 16});                                 // (B, T, C)
  const auto target = x.narrow(-1, 0, 1).mean(1, true).expand({32, 6, 1});  // (B, T, 1)
  std::cout << head << '\n' << std::fixed << std::setprecision(3);
  for (int step = 0; step <= 100; ++step) {
    const auto loss = torch::mse_loss(model->forward(x), target);
    if (step % 50 == 0) {
      std::cout << "step " << step << ": loss " << loss.item<float>() << '\n';
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }

  const auto weights = head->attention_steps(x).weights;  // (B, T, T)
  std::cout << "what the first token looks at:";
  for (int64_t key = 0; key < 6; ++key) {
    std::cout << ' ' << weights[0][0][key].item<float>();
  }
  std::cout << '\n';
}
