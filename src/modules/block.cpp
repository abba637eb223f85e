// SPDX-License-Identifier: MIT
#include "mini/block.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <ostream>
#include <utility>

#include "modules/functional.h"
#include "modules/linear.h"
#include "modules/module_checks.h"
#include "modules/print_option.h"
#include "modules/seeded_init.h"

namespace mini {

using torch::nn::LinearOptions;

// ---- LayerNorm

LayerNormImpl::LayerNormImpl(LayerNormOptions options_) : options(std::move(options_)) {
  LayerNormImpl::reset();
}

void LayerNormImpl::reset() {
  TORCH_CHECK(options.n_embd() > 0, "LayerNorm: expected n_embd above 0, got ", options.n_embd());
  weight = register_parameter("weight", at::ones({options.n_embd()}));
  if (options.bias()) bias = register_parameter("bias", at::zeros({options.n_embd()}));
}

void LayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::LayerNorm(n_embd=" << options.n_embd();
  detail::print_option(stream, "bias", options.bias());
  stream << ")";
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) {
  detail::check_input("LayerNorm::forward", x, options.n_embd(), weight);
  return detail::layer_norm(x, weight, bias);
}

// ---- Mlp

MlpImpl::MlpImpl(MlpOptions options_, detail::Weights weights) : options(std::move(options_)) {
  build(weights);
}

void MlpImpl::build(detail::Weights weights) {
  TORCH_CHECK(options.n_embd() > 0, "Mlp: expected n_embd above 0, got ", options.n_embd());
  detail::check_dropout("Mlp", options.dropout());
  detail::check_gelu("Mlp", options.gelu_approximate());

  const int64_t C = options.n_embd();
  const auto generator = detail::seeded_generator(options.seed());
  c_fc = register_module("c_fc", detail::make_linear(LinearOptions(C, 4 * C).bias(options.bias()),
                                                     generator, weights));
  c_proj = register_module(
      "c_proj",
      detail::make_linear(LinearOptions(4 * C, C).bias(options.bias()), generator, weights));
}

void MlpImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::Mlp(n_embd=" << options.n_embd();
  detail::print_option(stream, "bias", options.bias());
  detail::print_option(stream, "dropout", options.dropout(), 0.0);
  detail::print_option(stream, "gelu_approximate", options.gelu_approximate(), std::string("none"));
  detail::print_option(stream, "seed", options.seed());
  stream << ")";
}

at::Tensor MlpImpl::forward(const at::Tensor& x) {
  detail::check_input("Mlp::forward", x, options.n_embd(), c_fc->weight);
  const at::Tensor inner =
      detail::gelu(detail::linear(x, c_fc), options.gelu_approximate());  // (..., T, 4 C)
  return at::dropout(detail::linear(inner, c_proj), options.dropout(), is_training());
}

// ---- Block

BlockImpl::BlockImpl(BlockOptions options_, detail::Weights weights)
    : options(std::move(options_)) {
  build(weights);
}

void BlockImpl::build(detail::Weights weights) {
  detail::check_heads("Block", options.n_embd(), options.n_head());
  detail::check_dropout("Block", options.dropout());
  detail::check_scale("Block", options.scale());
  detail::check_gelu("Block", options.gelu_approximate());

  const int64_t C = options.n_embd();
  const auto generator = detail::seeded_generator(options.seed());
  const LayerNormOptions norm = LayerNormOptions(C).bias(options.bias());
  ln_1 = register_module("ln_1", LayerNorm(norm));
  attn = register_module("attn", MultiHeadAttention(MultiHeadAttentionOptions(C, options.n_head())
                                                        .bias(options.bias())
                                                        .causal(options.causal())
                                                        .dropout(options.dropout())
                                                        .scale(options.scale())
                                                        .seed(detail::next_seed(generator)),
                                                    weights));
  ln_2 = register_module("ln_2", LayerNorm(norm));
  mlp = register_module("mlp", Mlp(MlpOptions(C)
                                       .bias(options.bias())
                                       .dropout(options.dropout())
                                       .gelu_approximate(options.gelu_approximate())
                                       .seed(detail::next_seed(generator)),
                                   weights));
}

void BlockImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::Block(n_embd=" << options.n_embd() << ", n_head=" << options.n_head();
  detail::print_option(stream, "bias", options.bias());
  detail::print_option(stream, "causal", options.causal());
  detail::print_option(stream, "dropout", options.dropout(), 0.0);
  detail::print_option(stream, "scale", options.scale());
  detail::print_option(stream, "gelu_approximate", options.gelu_approximate(), std::string("none"));
  detail::print_option(stream, "seed", options.seed());
  stream << ")";
}

at::Tensor BlockImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask,
                              KvCache* cache) {
  detail::check_input("Block::forward", x, options.n_embd(), ln_1->weight);
  const at::Tensor attended = x + attn(ln_1(x), mask, cache);  // (..., T, C)
  return attended + mlp(ln_2(attended));                       // (..., T, C)
}

AttentionSteps BlockImpl::attention_steps(const at::Tensor& x,
                                          const std::optional<at::Tensor>& mask) {
  detail::check_input("Block::attention_steps", x, options.n_embd(), ln_1->weight);
  return attn->attention_steps(ln_1(x), mask);
}

}  // namespace mini
