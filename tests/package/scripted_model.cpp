// SPDX-License-Identifier: MIT
// Calls the operator from a script, and no function of the library. The argument, if there is one,
// is a second copy of the library, which is loaded before the script runs.
#include <dlfcn.h>
#include <torch/torch.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc > 1 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  const auto script = torch::jit::compile(R"(
def attend(x):
    return torch.ops.mini.scaled_dot_product_attention(x, x, x)
)");
  const at::Tensor x = torch::ones({1, 5, 8}).requires_grad_();
  const at::Tensor output = script->run_method("attend", x).toTensor();
  output.sum().backward();
  std::printf("output %g, gradient %s\n", output.mean().item<double>(),
              x.grad().defined() ? "defined" : "undefined");
  return 0;
}
