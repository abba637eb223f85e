// SPDX-License-Identifier: MIT
// Layers with initial weights from a seed, from LibTorch's global generator, or without values.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <optional>

namespace mini::detail {

/// Whether a new module draws its weights. If not, they have memory but no values, no generator is
/// used, and the caller must fill every parameter. Modules pass it to the modules in them.
enum class Weights : bool { kDrawn, kUndrawn };

/// A generator with this seed; without a seed none, which means LibTorch's global generator.
std::optional<at::Generator> seeded_generator(const std::optional<uint64_t>& seed);

/// A seed for a submodule, drawn from `generator`; without a generator none.
std::optional<uint64_t> next_seed(const std::optional<at::Generator>& generator);

/// A Linear with the weight, then the bias, that `Linear` itself draws. If there is a generator,
/// they are drawn from it, and the global generator is not used.
torch::nn::Linear make_linear(const torch::nn::LinearOptions& options,
                              const std::optional<at::Generator>& generator,
                              Weights weights = Weights::kDrawn);

/// An Embedding (rows, width) whose weight has memory but no values.
torch::nn::Embedding undrawn_embedding(int64_t rows, int64_t width);

}  // namespace mini::detail
