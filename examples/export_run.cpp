#include <mini/pretrained.h>

// Writes a checkpoint of train_gpt as a GPT-2 for Python: export_run MODEL.SAFETENSORS FOLDER
int main(int, char** argv) {
  const mini::GPT model = mini::load_nanogpt(argv[1], /*n_head=*/4, {.gelu_approximate = "tanh"});
  mini::save_gpt2(argv[2], model);
}
