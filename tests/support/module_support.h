// SPDX-License-Identifier: MIT
// Helpers of the modules' tests: a small GPT, comparisons of parameters, printed forms.
#pragma once

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "mini/gpt.h"
#include "mini/multi_head_attention.h"
#include "support/support.h"

namespace mini::test {

/// Options of a GPT that is small enough for tests; all widths differ.
inline GPTOptions small_gpt_options() {
  return GPTOptions(11).block_size(8).n_layer(2).n_head(3).n_embd(12);
}

/// Random token ids for `small_gpt_options`.
inline at::Tensor random_ids(std::vector<int64_t> sizes) {
  return at::randint(11, sizes, at::kLong);
}

/// Whether training mode is `expected` in every module of `model`.
inline bool all_training(const GPT& model, bool expected) {
  const auto modules = model->modules();
  return std::all_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return module->is_training() == expected; });
}

/// Rows (hs, C) of c_attn's weight that belong to one head. part: 0 queries, 1 keys, 2 values.
inline at::Tensor rows_of_head(const MultiHeadAttention& attention, int64_t part, int64_t head) {
  const int64_t C = attention->options.n_embd(), hs = C / attention->options.n_head();
  return attention->c_attn->weight.detach().narrow(0, part * C + head * hs, hs);
}

/// The text that pretty_print writes, without submodules.
inline std::string printed(const torch::nn::Module& module) {
  std::ostringstream stream;
  module.pretty_print(stream);
  return stream.str();
}

inline std::vector<std::string> parameter_names(const torch::nn::Module& module) {
  return module.named_parameters().keys();
}

/// Adds noise to every parameter of `module`, so that none keeps its initial 0 or 1.
inline void scramble(const torch::nn::Module& module, double std, uint64_t seed) {
  torch::manual_seed(seed);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.add_(at::randn_like(parameter), std);
  }
}

/// Checks that both have the same parameter names and bits.
inline void check_same_parameters(const torch::nn::Module& actual,
                                  const torch::nn::Module& expected) {
  REQUIRE(parameter_names(actual) == parameter_names(expected));
  const auto parameters = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    INFO(item.key());
    CHECK_THAT(parameters[item.key()], Equals(item.value()));
  }
}

/// The result of clone() with its type.
template <typename Impl>
std::shared_ptr<Impl> clone_of(const torch::nn::ModuleHolder<Impl>& module) {
  auto clone = std::dynamic_pointer_cast<Impl>(module->clone());
  REQUIRE(clone);
  return clone;
}

}  // namespace mini::test
