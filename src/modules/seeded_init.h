// SPDX-License-Identifier: MIT
// New layers that draw their weights from a generator of their own, or leave that to their owner.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <optional>

namespace mini::detail {

/// The generator that a module's seed stands for. Without a seed none, which means the global one.
std::optional<at::Generator> seeded_generator(const std::optional<uint64_t>& seed);

/// A seed for a part of a module. Without a generator none.
std::optional<uint64_t> next_seed(const std::optional<at::Generator>& generator);

/// A Linear with the weight, then the bias, that `Linear` itself draws, from `generator` if there
/// is one: the global generator is left alone then.
torch::nn::Linear make_linear(const torch::nn::LinearOptions& options,
                              const std::optional<at::Generator>& generator);

/// An Embedding (rows, width) whose weight has memory but no values yet.
torch::nn::Embedding undrawn_embedding(int64_t rows, int64_t width);

/// While one lives, `make_linear` and `GPT` on this thread leave their weights without values, and
/// draw nothing: whoever holds it gives them all.
class LeaveUndrawn {
 public:
  LeaveUndrawn();
  ~LeaveUndrawn();
  /// Whether one lives on this thread.
  static bool in_force();
  LeaveUndrawn(const LeaveUndrawn&) = delete;
  LeaveUndrawn& operator=(const LeaveUndrawn&) = delete;

 private:
  bool before_;
};

}  // namespace mini::detail
