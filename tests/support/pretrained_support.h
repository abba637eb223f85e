// SPDX-License-Identifier: MIT
// Helpers of the tests of pretrained GPTs: a source model, changed tensors, comparisons.
#pragma once

#include <functional>
#include <string>

#include "mini/gpt.h"
#include "support/module_support.h"

namespace mini::test {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;

/// n_head of `small_gpt_options`.
inline constexpr int64_t kHeads = 3;

/// A GPT with nonzero biases and weights that all differ.
inline GPT scrambled_gpt(const GPTOptions& options) {
  GPT model(options);
  scramble(*model, 0.3, 1);
  return model;
}

/// Logits for fixed token ids.
inline at::Tensor logits(GPT& model) {
  const at::NoGradGuard no_grad;
  return model(at::arange(16).view({2, 8}).remainder(11));
}

/// `tensors` with each name replaced by rename(name). A tensor whose new name is "" is left out.
inline Tensors renamed(const Tensors& tensors,
                       const std::function<std::string(const std::string&)>& rename) {
  Tensors result;
  for (const auto& item : tensors) {
    const std::string name = rename(item.key());
    if (!name.empty()) result.insert(name, item.value());
  }
  return result;
}

inline Tensors without(const Tensors& tensors, const std::string& name) {
  return renamed(tensors, [&](const std::string& n) { return n == name ? "" : n; });
}

inline Tensors with(Tensors tensors, const std::string& name, const at::Tensor& tensor) {
  tensors = without(tensors, name);
  tensors.insert(name, tensor);
  return tensors;
}

inline void check_same_options(const GPTOptions& actual, const GPTOptions& expected) {
  CHECK(actual.vocab_size() == expected.vocab_size());
  CHECK(actual.block_size() == expected.block_size());
  CHECK(actual.n_layer() == expected.n_layer());
  CHECK(actual.n_head() == expected.n_head());
  CHECK(actual.n_embd() == expected.n_embd());
  CHECK(actual.bias() == expected.bias());
  CHECK(actual.gelu_approximate() == expected.gelu_approximate());
}

}  // namespace mini::test
