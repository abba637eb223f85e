// SPDX-License-Identifier: MIT
// Calls the operator by name, as a scripted model does, and no function of the library. The
// optional argument is a second copy of the library, which is loaded before the call.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc > 1 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  const auto attention =
      c10::Dispatcher::singleton().findSchema({"mini::scaled_dot_product_attention", ""});
  if (!attention) {
    std::printf("the operator is missing\n");
    return 1;
  }
  const at::Tensor x = at::ones({1, 5, 8}).requires_grad_();
  torch::jit::Stack stack = {x, x, x, c10::IValue(), c10::IValue(), "none", false};
  attention->callBoxed(stack);
  const at::Tensor output = stack[0].toTensor();
  output.sum().backward();
  std::printf("output %g, gradient %s\n", output.mean().item<double>(),
              x.grad().defined() ? "defined" : "undefined");
  return 0;
}
