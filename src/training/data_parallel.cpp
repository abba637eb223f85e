// SPDX-License-Identifier: MIT
#include "mini/data_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#ifdef _OPENMP
#include <omp.h>
#endif

// Sets how many threads MKL uses for calls from this thread, and returns the previous number. Null
// if LibTorch was built without MKL.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace mini {
namespace {

// While an object exists, LibTorch's operations on the calling thread use one thread. This class
// does not call at::set_num_threads, which would also change the number for threads that start
// later. LibTorch's operations run on one thread inside a parallel region anyway, but MKL would
// still split its products for several threads and copy each piece.
class OneThread {
 public:
  OneThread() {
    set_openmp(1);
    if (MKL_Set_Num_Threads_Local != nullptr) mkl_threads_ = MKL_Set_Num_Threads_Local(1);
  }
  ~OneThread() {
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_threads_);
    set_openmp(threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static void set_openmp([[maybe_unused]] int threads) {
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
  }

  // The first call of get_num_threads() on a thread initialises OpenMP's and MKL's numbers for that
  // thread, so the call must come before the numbers are changed.
  int threads_ = at::get_num_threads();
  int mkl_threads_ = 0;
};

// One part's contribution to the loss and to the gradient of each parameter. The gradient is
// undefined if this part of the loss does not reach the parameter.
struct Part {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

Part run(const std::vector<at::Tensor>& parameters, const at::Tensor& loss) {
  TORCH_CHECK(loss.numel() == 1 && loss.requires_grad(),
              "data_parallel_backward: expected a loss of one element that requires a gradient, "
              "got shape ",
              loss.sizes(), loss.requires_grad() ? "" : " without requires_grad");
  return {.loss = loss.detach().view(at::IntArrayRef()),
          .gradients = torch::autograd::grad({loss}, parameters, {}, std::nullopt,
                                             /*create_graph=*/false, /*allow_unused=*/true)};
}

// Accumulates as `backward()` does, but runs no hooks: autograd::grad already ran them.
void add_gradients(const std::vector<at::Tensor>& parameters, const Part& part) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!part.gradients[i].defined()) continue;
    at::Tensor& sum = parameters[i].mutable_grad();
    torch::autograd::AccumulateGrad::accumulateGrad(
        parameters[i], sum, part.gradients[i], /*num_expected_refs=*/1,
        [&](at::Tensor&& replaced) { sum = std::move(replaced); });
  }
}

// The parameters that require a gradient, each once.
std::vector<at::Tensor> trained(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
      result.push_back(parameter);
    }
  }
  TORCH_CHECK(!result.empty(),
              "data_parallel_backward: expected a parameter that requires a gradient, got ",
              parameters.size(), " that do not");
  return result;
}

int64_t default_parts(const std::vector<at::Tensor>& parameters, int64_t batch_size) {
  constexpr size_t kMostBytes = size_t{1} << 29;  // for the gradients of all parts
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), batch_size);
  size_t bytes = 0;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.is_cpu()) return 1;
    bytes += parameter.nbytes();
  }
  return static_cast<size_t>(parts) * bytes <= kMostBytes ? parts : 1;
}

}  // namespace

at::Tensor data_parallel_backward(const std::vector<at::Tensor>& parameters, int64_t batch_size,
                                  const std::function<at::Tensor(int64_t, int64_t)>& loss,
                                  std::optional<int64_t> parts) {
  TORCH_CHECK(batch_size > 0 && parts.value_or(1) > 0,
              "data_parallel_backward: expected batch_size and parts above 0, got batch_size ",
              batch_size, " and parts ", parts.value_or(1));
  const std::vector<at::Tensor> inputs = trained(parameters);
  const int64_t count = std::min(parts ? *parts : default_parts(inputs, batch_size), batch_size);
  std::vector<Part> done(static_cast<size_t>(count));
  if (count == 1) {
    done[0] = run(inputs, loss(0, batch_size));
  } else {
    const auto start_of = [&](int64_t part) {
      return batch_size / count * part + std::min(batch_size % count, part);
    };
    const at::ThreadLocalState state;
    at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
      const at::ThreadLocalStateGuard as_at_the_call(state);
      const OneThread one_thread;
      for (int64_t part = first; part < last; ++part) {
        done[static_cast<size_t>(part)] = run(inputs, loss(start_of(part), start_of(part + 1)));
      }
    });
  }

  at::Tensor sum = done[0].loss;
  for (const Part& part : done) {
    if (&part != &done[0]) sum = at::add(sum, part.loss);
    add_gradients(inputs, part);
  }
  return sum;
}

}  // namespace mini
