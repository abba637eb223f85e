#include <mini/safetensors.h>
#include <mini/state_dict.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(2, 8), torch::nn::ReLU(), torch::nn::Linear(8, 1));
  mini::load_state_dict(*model, mini::load_safetensors("from_python.safetensors").tensors);
  std::cout << model->forward(torch::ones({1, 2})).item<float>() << '\n';
  mini::save_safetensors("from_cpp.safetensors", mini::state_dict(*model));
}
