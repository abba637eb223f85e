// SPDX-License-Identifier: MIT
// Data-parallel training on the threads of one process. The batch is split into parts, each thread
// runs the forward and backward pass of its own parts, and the gradients are added at the end.
//
// By default, LibTorch runs each operation on all threads, and the threads synchronise after every
// operation. A training step of a small model has hundreds of operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "mini/export.h"

namespace mini {

/// Computes the loss of a batch and adds its gradients to those of `parameters`, as `backward()`
/// does. Returns the loss as a scalar tensor that does not require a gradient.
///
///     const auto loss = [&](int64_t begin, int64_t end) {  // contribution of rows [begin, end)
///       const double weight = double(end - begin) / double(x.size(0));
///       return weight * model->loss(x.slice(0, begin, end), targets.slice(0, begin, end));
///     };
///     optimizer.zero_grad();
///     mini::data_parallel_backward(model->parameters(), x.size(0), loss);
///     optimizer.step();
///
/// - `parameters` receive gradients if they require them and the loss reaches them; the gradients
///   of other parameters are left unchanged. A parameter that is listed twice counts once.
///   Gradients of other leaf tensors are discarded.
/// - `batch_size` is the number of rows of the batch, for instance its sequences.
/// - `loss(begin, end)` returns the contribution of rows [begin, end) to the loss of the batch: a
///   tensor of one element that requires a gradient. The contributions of all parts are added.
///   Several threads call `loss` at the same time. Each call must build its own graph, starting
///   from the parameters, and must not modify shared state.
/// - `parts` is the number of slices of consecutive rows that the batch is split into. Values above
///   batch_size are reduced to batch_size. The default is one part per thread. If the gradients of
///   these parts would exceed 512 MiB in total, or if a parameter is not on the CPU, the default is
///   one part.
///
/// With several parts, LibTorch's operations in `loss` run on one thread each; with one part, they
/// run on all threads. Grad mode, autocast and other thread-local settings are inherited from the
/// calling thread. Hooks that `register_hook` added to a parameter run once per part, on the
/// gradient of that part.
///
/// The gradients are summed in the order of the parts. With two or more parts, the bits of the sum
/// depend on the number of parts, not on the number of threads. If several parts draw from one
/// generator, as dropout does, the order of the draws is not fixed. With one part it is. Each part
/// keeps its own gradients in memory until all parts are done.
///
/// Throws what `loss` or a hook throws. Throws c10::Error if batch_size or parts is below 1, if no
/// parameter requires a gradient, or if a loss does not have one element or does not require a
/// gradient. If the function throws, no gradient has changed.
MINI_API at::Tensor data_parallel_backward(
    const std::vector<at::Tensor>& parameters, int64_t batch_size,
    const std::function<at::Tensor(int64_t begin, int64_t end)>& loss,
    std::optional<int64_t> parts = std::nullopt);

}  // namespace mini
