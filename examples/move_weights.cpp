#include <mini/safetensors.h>
#include <mini/state_dict.h>
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(2, 8), torch::nn::ReLU(), torch::nn::Linear(8, 1));
  mini::load_state_dict(*model, mini::load_safetensors("from_python.safetensors").tensors);
  const float output = model->forward(torch::ones({1, 2})).item<float>();
  std::cout << std::fixed << std::setprecision(4) << output << '\n';
  mini::save_safetensors("from_cpp.safetensors", mini::state_dict(*model));
}
