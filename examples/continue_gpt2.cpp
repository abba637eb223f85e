#include <mini/generate.h>
#include <mini/pretrained.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  mini::GPT model = mini::load_gpt2("from_python");
  const auto prompt = torch::tensor({{1, 2, 3}}, torch::kLong);  // (B, T)
  const auto tokens = mini::generate(model, prompt, {.new_tokens = 8, .temperature = 0});
  for (int64_t i = 0; i < tokens.size(1); ++i) {
    std::cout << (i == 0 ? "" : " ") << tokens[0][i].item<int64_t>();
  }
  std::cout << '\n';
  mini::save_gpt2("from_cpp", model);
}
