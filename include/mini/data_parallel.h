// SPDX-License-Identifier: MIT
// Data parallelism over the threads of one process: each takes sequences of its own through the
// forward and the backward pass, and all meet once, where the gradients are added up.
//
// LibTorch's own way, all threads in one operation after the other, waits at each for the slowest
// of them, and a training step of a small model has hundreds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "mini/export.h"

namespace mini {

/// Adds the gradients of a batch's loss to those of `parameters`, as `backward` does, and returns
/// the loss, a scalar. The batch is cut into `parts` of consecutive sequences (or whatever a
/// batch has rows of), one a thread by default.
///
///     const auto loss = [&](int64_t begin, int64_t end) {  // the share of these sequences
///       const double share = double(end - begin) / double(x.size(0));
///       return share * model->loss(x.slice(0, begin, end), targets.slice(0, begin, end));
///     };
///     optimizer.zero_grad();
///     mini::data_parallel_backward(model->parameters(), x.size(0), loss);
///     optimizer.step();
///
/// `loss(begin, end)` is what the sequences [begin, end) of the batch_size add to the loss: one
/// number. It is called for several parts at a time, each on a thread of its own; it may change
/// nothing that they share, and builds its graph from the parameters on, since each part goes back
/// through the whole of its own. LibTorch's operations take one thread in there, but all of them
/// where there is one part; grad mode, autocast and the like are as at the call. Hooks on a
/// parameter run on each part's gradient.
///
/// The gradients of several parts are added in order, so their bits depend on how many there are
/// and not on the threads. Not so where parts draw from one generator, as dropout does: the draws
/// fall as the threads come. One part keeps them in order.
///
/// Parameters that the loss does not reach, or that need no gradient, are left as they are; of
/// other leaves no gradient is kept. A part holds gradients of its own until all are done: by
/// default the batch stays whole where they would take more than 512 MiB together, and off the CPU.
///
/// Throws what `loss` and hooks throw, and c10::Error if batch_size or parts is below 1, if no
/// parameter needs a gradient, or for a loss that is not one number or needs none. Gradients are
/// unchanged then.
MINI_API at::Tensor data_parallel_backward(
    const std::vector<at::Tensor>& parameters, int64_t batch_size,
    const std::function<at::Tensor(int64_t begin, int64_t end)>& loss,
    std::optional<int64_t> parts = std::nullopt);

}  // namespace mini
