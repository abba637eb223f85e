// SPDX-License-Identifier: MIT
// Implementations of attention as functions of q, k, v and options, for the conformance checks.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/nn/modules/activation.h>

#include <string>
#include <vector>

#include "mini/conformance.h"
#include "mini/head.h"
#include "mini/multi_head_attention.h"

namespace mini::test {

/// A function, and what it offers.
struct NamedAttention {
  std::string name;
  AttentionFunction function;
  AttentionFeatures features = {};
};

/// Lends the state of `generator` to LibTorch's global generator while an object exists, for
/// functions that accept no generator.
class GlobalGenerator {
 public:
  explicit GlobalGenerator(const std::optional<at::Generator>& generator) : generator_(generator) {
    if (generator_) global_.set_state(generator_->get_state());
  }
  ~GlobalGenerator() {
    if (generator_) generator_->set_state(global_.get_state());
  }
  GlobalGenerator(const GlobalGenerator&) = delete;
  GlobalGenerator& operator=(const GlobalGenerator&) = delete;

 private:
  std::optional<at::Generator> generator_;
  at::Generator global_ = at::detail::getDefaultCPUGenerator();
};

inline at::Tensor operator_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionOptions& options) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mini::scaled_dot_product_attention", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                                               const at::Tensor&, const std::optional<at::Tensor>&,
                                               std::optional<double>, c10::string_view, bool)>();
  const char* causal = options.causal == Causal::kUpperLeft    ? "upper_left"
                       : options.causal == Causal::kLowerRight ? "lower_right"
                                                               : "none";
  return op.call(q, k, v, options.mask, options.scale, causal, options.grouped_queries);
}

/// A matrix (rows, columns) of zeros, with an identity of `size` rows that starts at (row, column).
inline at::Tensor shifted_eye(const at::Tensor& like, int64_t rows, int64_t columns, int64_t row,
                              int64_t column, int64_t size) {
  at::Tensor matrix = at::zeros({rows, columns}, like.options().requires_grad(false));
  matrix.narrow(0, row, size).narrow(1, column, size).diagonal().fill_(1);
  return matrix;
}

/// `Head` on x = [q | k | v], with weights that select one of the three: (..., T, 3 hs).
inline at::Tensor head_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options) {
  const int64_t hs = q.size(-1);
  Head head(HeadOptions(3 * hs, hs)
                .causal(options.causal != Causal::kNone)
                .dropout(options.dropout)
                .scale(options.scale)
                .seed(0));
  head->train(options.training);
  head->to(q.device());
  int64_t part = 0;
  for (auto* layer : {&head->query, &head->key, &head->value}) {
    (*layer)->weight.set_data(shifted_eye(q, hs, 3 * hs, 0, hs * part++, hs));
    (*layer)->weight.requires_grad_(false);
  }
  const GlobalGenerator generator(options.generator);
  return head->forward(at::cat({q, k, v}, -1), options.mask);
}

/// `MultiHeadAttention` with three heads on x = [q | k | v]: the first head computes attention and
/// the other heads see zeros.
inline at::Tensor multi_head_attention(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const AttentionOptions& options) {
  const int64_t hs = q.size(-1), C = 3 * hs;
  MultiHeadAttention attention(MultiHeadAttentionOptions(C, 3)
                                   .causal(options.causal != Causal::kNone)
                                   .scale(options.scale)
                                   .seed(0));
  attention->to(q.device());
  at::Tensor weight = at::zeros({3 * C, C}, q.options().requires_grad(false));
  for (int64_t part = 0; part < 3; ++part) {
    weight.add_(shifted_eye(q, 3 * C, C, part * C, part * hs, hs));
  }
  attention->c_attn->weight.set_data(weight);
  attention->c_proj->weight.set_data(shifted_eye(q, C, C, 0, 0, C));
  for (const at::Tensor& parameter : attention->parameters()) parameter.requires_grad_(false);
  std::optional<at::Tensor> mask = options.mask;
  if (mask && mask->dim() > 2) mask = mask->unsqueeze(-3);
  return attention->forward(at::cat({q, k, v}, -1), mask).narrow(-1, 0, hs);
}

inline at::Tensor libtorch_function(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options) {
  const GlobalGenerator generator(options.generator);
  return at::scaled_dot_product_attention(
      q, k, v, options.mask, options.training ? options.dropout : 0.0,
      options.causal == Causal::kUpperLeft, options.scale, options.grouped_queries);
}

/// `torch::nn::MultiheadAttention` with one head and identity projections. Its bool mask is true
/// where a key is hidden, and its tensors are (T, B, C).
inline at::Tensor libtorch_module(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOptions& options) {
  const int64_t C = q.size(-1);
  torch::nn::MultiheadAttention attention(
      torch::nn::MultiheadAttentionOptions(C, 1).bias(false).dropout(options.dropout));
  attention->train(options.training);
  const at::Tensor eye = shifted_eye(q, C, C, 0, 0, C);
  attention->in_proj_weight.set_data(eye.repeat({3, 1}));
  attention->out_proj->weight.set_data(eye.clone());
  for (const at::Tensor& parameter : attention->parameters()) parameter.requires_grad_(false);
  at::Tensor mask;
  if (options.mask) {
    mask = options.mask->scalar_type() == at::kBool ? options.mask->logical_not() : *options.mask;
  }
  const auto time_first = [](const at::Tensor& t) { return t.dim() == 3 ? t.transpose(0, 1) : t; };
  const GlobalGenerator generator(options.generator);
  return time_first(std::get<0>(attention->forward(time_first(q), time_first(k), time_first(v),
                                                   /*key_padding_mask=*/{},
                                                   /*need_weights=*/false, mask)));
}

/// Our functions, in the order of the columns of docs/conformance.md.
inline std::vector<NamedAttention> our_attention_functions() {
  const AttentionFeatures module = {.separate_inputs = false, .grouped_queries = false};
  AttentionFeatures without_dropout = module;
  without_dropout.dropout = false;  // its dropout also applies to the output
  return {
      {"fused", scaled_dot_product_attention},
      {"composite", [](const auto& q, const auto& k, const auto& v,
                       const auto& options) { return attention_steps(q, k, v, options).output; }},
      {"operator", operator_attention, {.dropout = false}},
      {"Head", head_attention, module},
      {"MultiHeadAttention", multi_head_attention, without_dropout}};
}

inline std::vector<NamedAttention> libtorch_attention_functions() {
  return {{"at::scaled_dot_product_attention", libtorch_function, {.lower_right = false}},
          {"torch::nn::MultiheadAttention",
           libtorch_module,
           {.scale = false, .upper_left = false, .lower_right = false, .grouped_queries = false}}};
}

}  // namespace mini::test
