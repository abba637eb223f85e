// SPDX-License-Identifier: MIT
// Attention functions for the conformance suite: the paths of this library, and LibTorch's own.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/nn/modules/activation.h>

#include <string>
#include <utility>
#include <vector>

#include "mini/conformance.h"
#include "mini/head.h"

namespace mini::test {

[[noreturn]] inline void unsupported(const char* what) {
  C10_THROW_ERROR(NotImplementedError, std::string(what) + " is not supported");
}

inline at::Tensor by_fused_path(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options) {
  const AttentionPath path = attention_path(q, k, v, options);  // checks the arguments
  if (!path.fused) unsupported(path.reason.c_str());
  return mini::scaled_dot_product_attention(q, k, v, options);
}

inline at::Tensor by_composite_path(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionOptions& options) {
  return attention_steps(q, k, v, options).output;
}

/// torch.ops.mini.scaled_dot_product_attention, through LibTorch's dispatcher.
inline at::Tensor by_operator(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  if (options.training) unsupported("dropout");
  using Signature =
      at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                 const std::optional<at::Tensor>&, std::optional<double>, c10::string_view, bool);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mini::scaled_dot_product_attention", "")
                             .typed<Signature>();
  const char* names[] = {"none", "upper_left", "lower_right"};
  return op.call(q, k, v, options.mask, options.scale, names[static_cast<int>(options.causal)],
                 options.grouped_queries);
}

/// A `Head` whose projections select q, k and v from one input.
inline at::Tensor by_head(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionOptions& options) {
  if (!q.defined()) unsupported("an undefined input");
  if (q.sizes() != k.sizes() || q.sizes() != v.sizes()) unsupported("another shape of k or v");
  if (q.scalar_type() != k.scalar_type() || !q.is_floating_point()) unsupported("another dtype");
  if (options.causal == Causal::kUpperLeft) unsupported("another corner of causality");
  if (options.generator || options.grouped_queries) unsupported("the option");
  if (q.numel() == 0 && q.size(-1) == 0) unsupported("a head size of 0");
  const int64_t d = q.size(-1);
  HeadOptions head_options(3 * d, d);
  head_options.scale(options.scale).dropout(options.dropout).seed(1);
  head_options.causal(options.causal == Causal::kLowerRight);
  Head head(head_options);
  head->to(q.device(), q.scalar_type());
  head->train(options.training);
  if (!at::cat({q, k, v}).isfinite().all().item<bool>())
    unsupported("mixing NaN with other numbers");
  {
    const at::NoGradGuard no_grad;
    int64_t part = 0;
    for (const auto& projection : {head->query, head->key, head->value}) {
      projection->weight.zero_();
      projection->weight.narrow(1, d * part++, d).fill_diagonal_(1.0);
    }
  }
  return head->forward(at::cat({q, k, v}, -1), options.mask);
}

/// LibTorch's function.
inline at::Tensor by_libtorch(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  if (options.generator) unsupported("a generator");
  const double dropout = options.training ? options.dropout : 0.0;
  std::optional<at::Tensor> mask = options.mask;
  bool is_causal = options.causal == Causal::kUpperLeft;
  if (options.causal == Causal::kLowerRight) {
    if (mask) unsupported("a mask with this corner of causality");
    const int64_t Tq = q.size(-2), Tk = k.size(-2);
    mask = at::ones({Tq, Tk}, at::device(q.device()).dtype(at::kBool)).tril(Tk - Tq);
  }
  return at::scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, options.scale,
                                          options.grouped_queries);
}

/// -infinity where `hidden` is true, else 0.
inline at::Tensor hiding(const at::Tensor& hidden, const at::TensorOptions& options) {
  return at::zeros(hidden.sizes(), options)
      .masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

/// torch::nn::MultiheadAttention with one head and identity projections.
inline at::Tensor by_libtorch_module(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionOptions& options) {
  if (!q.defined() || q.dim() < 3 || q.numel() == 0) unsupported("an input without a batch");
  if (options.scale || options.generator || options.grouped_queries) unsupported("the option");
  if (q.size(-1) != v.size(-1)) unsupported("another value width");
  const int64_t d = q.size(-1), Tq = q.size(-2), Tk = k.size(-2);
  torch::nn::MultiheadAttention module(
      torch::nn::MultiheadAttentionOptions(d, 1).dropout(options.dropout));
  module->to(q.device(), q.scalar_type());
  module->train(options.training);
  {
    const at::NoGradGuard no_grad;
    const at::Tensor identity = at::eye(d, q.options());
    module->in_proj_weight.copy_(at::cat({identity, identity, identity}));
    module->in_proj_bias.zero_();
    module->out_proj->weight.copy_(identity);
    module->out_proj->bias.zero_();
  }
  at::Tensor mask;  // (Tq, Tk), added to the scores
  if (options.mask) {
    if (options.mask->dim() > 2) unsupported("a mask with a batch");
    mask = options.mask->expand({Tq, Tk});
    if (mask.scalar_type() == at::kBool) mask = hiding(mask.logical_not(), q.options());
  }
  if (options.causal != Causal::kNone) {
    const int64_t shift = options.causal == Causal::kLowerRight ? Tk - Tq : 0;
    const at::Tensor later = at::ones({Tq, Tk}, q.options()).triu(1 + shift).to(at::kBool);
    mask = mask.defined() ? mask + hiding(later, mask.options()) : hiding(later, q.options());
  }
  const auto rows = [](const at::Tensor& t) {  // (T, batch, d)
    return t.reshape({-1, t.size(-2), t.size(-1)}).transpose(0, 1);
  };
  const at::Tensor output =
      std::get<0>(module->forward(rows(q), rows(k), rows(v), {}, /*need_weights=*/false, mask));
  at::DimVector sizes(q.sizes());
  return output.transpose(0, 1).reshape(sizes);
}

}  // namespace mini::test
