// SPDX-License-Identifier: MIT
// Layers with initial weights from a seed, from LibTorch's global generator, or without values.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <optional>

namespace mini::detail {

/// Whether a constructor draws initial weights. If not, parameters have memory but no values, no
/// generator is used, and the caller must fill every parameter.
enum class Weights : bool { kDrawn, kUndrawn };

/// A generator with this seed. Without a seed: nullopt, which means the global generator.
std::optional<at::Generator> seeded_generator(const std::optional<uint64_t>& seed);

/// A seed for a submodule, drawn from `generator`. Without a generator: nullopt.
std::optional<uint64_t> next_seed(const std::optional<at::Generator>& generator);

/// A Linear whose weight and bias have the distribution and order of draws of LibTorch's `Linear`.
/// If there is a generator, they are drawn from it, and the global generator is not used.
torch::nn::Linear make_linear(const torch::nn::LinearOptions& options,
                              const std::optional<at::Generator>& generator,
                              Weights weights = Weights::kDrawn);

/// An Embedding (rows, width) whose weight has memory but no values.
torch::nn::Embedding undrawn_embedding(int64_t rows, int64_t width);

}  // namespace mini::detail
