// SPDX-License-Identifier: MIT
#include "mini/data_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <unordered_set>

namespace mini {
namespace {

// What one part adds to the loss, and to the gradient of each parameter: undefined where it does
// not reach one.
struct Part {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

// LibTorch's operations take one thread. Inside a parallel region they do so anyway, but MKL then
// still cuts its products into pieces for all threads, and copies each.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_ = at::get_num_threads();
};

std::vector<at::Tensor> trained(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
      result.push_back(parameter);
    }
  }
  TORCH_CHECK(!result.empty(), "data_parallel_backward: expected parameters that need gradients, ",
              "got ", parameters.size(), ", none of which does");
  return result;
}

int64_t default_parts(const std::vector<at::Tensor>& parameters) {
  constexpr size_t kMostBytes = size_t{1} << 29;
  const auto threads = static_cast<size_t>(at::get_num_threads());
  size_t bytes = 0;
  bool on_cpu = true;
  for (const at::Tensor& parameter : parameters) {
    bytes += parameter.nbytes();
    on_cpu = on_cpu && parameter.is_cpu();
  }
  return on_cpu && threads * bytes <= kMostBytes ? static_cast<int64_t>(threads) : 1;
}

at::Tensor checked(const at::Tensor& loss) {
  TORCH_CHECK(loss.numel() == 1 && loss.requires_grad(),
              "data_parallel_backward: expected a loss of one number that needs a gradient, got "
              "shape ",
              loss.sizes(), loss.requires_grad() ? "" : " without gradient");
  return loss;
}

void add_gradients(const std::vector<at::Tensor>& parameters, const Part& part) {
  std::vector<at::Tensor> reached, gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!part.gradients[i].defined()) continue;
    reached.push_back(parameters[i]);
    gradients.push_back(part.gradients[i]);
  }
  torch::autograd::backward(reached, gradients);
}

}  // namespace

at::Tensor data_parallel_backward(const std::vector<at::Tensor>& parameters, int64_t batch_size,
                                  const std::function<at::Tensor(int64_t, int64_t)>& loss,
                                  std::optional<int64_t> parts) {
  TORCH_CHECK(batch_size > 0 && parts.value_or(1) > 0,
              "data_parallel_backward: expected batch_size and parts above 0, got batch_size ",
              batch_size, " and parts ", parts.value_or(1));
  const std::vector<at::Tensor> inputs = trained(parameters);
  const int64_t count = std::min(parts.value_or(default_parts(inputs)), batch_size);
  if (count == 1) {
    const at::Tensor whole = checked(loss(0, batch_size));
    torch::autograd::backward({whole}, {}, std::nullopt, /*create_graph=*/false, inputs);
    return whole.detach();
  }

  std::vector<Part> done(static_cast<size_t>(count));
  const at::ThreadLocalState state;
  at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    const at::ThreadLocalStateGuard as_at_the_call(state);
    const OneThread one_thread;
    for (int64_t i = first; i < last; ++i) {
      Part& part = done[static_cast<size_t>(i)];
      part.loss = checked(loss(batch_size * i / count, batch_size * (i + 1) / count));
      part.gradients = torch::autograd::grad({part.loss}, inputs, {}, std::nullopt,
                                             /*create_graph=*/false, /*allow_unused=*/true);
      part.loss = part.loss.detach();
    }
  });

  at::Tensor sum = done.front().loss;
  for (const Part& part : done) {
    if (&part != &done.front()) sum = at::add(sum, part.loss);
    add_gradients(inputs, part);
  }
  return sum;
}

}  // namespace mini
