// SPDX-License-Identifier: MIT
#include "modules/seeded_init.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace mini::detail {
namespace {

using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;
using torch::nn::LinearOptions;

void give_memory(at::Tensor& parameter, at::IntArrayRef sizes) {
  parameter.set_data(at::empty(sizes, parameter.options().requires_grad(false)));
}

}  // namespace

std::optional<at::Generator> seeded_generator(const std::optional<uint64_t>& seed) {
  return seed ? std::optional(at::make_generator<at::CPUGeneratorImpl>(*seed)) : std::nullopt;
}

std::optional<uint64_t> next_seed(const std::optional<at::Generator>& generator) {
  return generator ? std::optional(at::check_generator<at::CPUGeneratorImpl>(generator)->random64())
                   : std::nullopt;
}

Linear make_linear(const LinearOptions& options, const std::optional<at::Generator>& generator,
                   Weights weights) {
  if (!generator && weights == Weights::kDrawn) return Linear(options);
  // Linear's constructor draws from the global generator. Without rows it draws nothing.
  Linear linear(LinearOptions(options.in_features(), 0).bias(options.bias()));
  linear->options = options;
  const at::NoGradGuard no_grad;
  give_memory(linear->weight, {options.out_features(), options.in_features()});
  if (options.bias()) give_memory(linear->bias, {options.out_features()});
  if (weights == Weights::kDrawn) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(options.in_features()));
    linear->weight.uniform_(-bound, bound, generator);
    if (options.bias()) linear->bias.uniform_(-bound, bound, generator);
  }
  return linear;
}

Embedding undrawn_embedding(int64_t rows, int64_t width) {
  Embedding embedding(EmbeddingOptions(0, width));  // without rows it draws nothing
  embedding->options.num_embeddings(rows);
  give_memory(embedding->weight, {rows, width});
  return embedding;
}

}  // namespace mini::detail
