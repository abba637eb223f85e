// SPDX-License-Identifier: MIT
#include "mini/head.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <ostream>
#include <utility>

namespace mini {
namespace {

using torch::nn::Linear;
using torch::nn::LinearOptions;

// A bias-free Linear with the weights that `Linear` itself draws, but from `generator`.
Linear seeded_linear(int64_t in_features, int64_t out_features, at::Generator generator) {
  // Linear's constructor draws from the global generator; with no rows it has nothing to draw.
  Linear linear(LinearOptions(in_features, 0).bias(false));
  linear->options.out_features(out_features);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  const at::NoGradGuard no_grad;
  linear->weight.set_data(
      at::empty({out_features, in_features}, linear->weight.options().requires_grad(false))
          .uniform_(-bound, bound, std::move(generator)));
  return linear;
}

}  // namespace

HeadOptions::HeadOptions(int64_t n_embd, int64_t head_size)
    : n_embd_(n_embd), head_size_(head_size) {}

HeadImpl::HeadImpl(HeadOptions options_) : options(std::move(options_)) { HeadImpl::reset(); }

void HeadImpl::reset() {
  TORCH_CHECK(options.n_embd() > 0 && options.head_size() > 0,
              "Head: expected n_embd and head_size above 0, got n_embd ", options.n_embd(),
              " and head_size ", options.head_size());
  TORCH_CHECK(options.dropout() >= 0.0 && options.dropout() <= 1.0,
              "Head: expected a dropout probability in [0, 1], got ", options.dropout());
  TORCH_CHECK(!options.scale() || std::isfinite(*options.scale()),
              "Head: expected a finite scale, got ", options.scale().value_or(0.0));

  std::optional<at::Generator> generator;
  if (options.seed()) {
    generator = at::make_generator<at::CPUGeneratorImpl>(*options.seed());
  }
  const auto projection = [&] {
    return generator ? seeded_linear(options.n_embd(), options.head_size(), *generator)
                     : Linear(LinearOptions(options.n_embd(), options.head_size()).bias(false));
  };
  query = register_module("query", projection());
  key = register_module("key", projection());
  value = register_module("value", projection());
}

void HeadImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::Head(n_embd=" << options.n_embd() << ", head_size=" << options.head_size();
  if (options.causal()) {
    stream << ", causal=true";
  }
  if (options.dropout() != 0.0) {
    stream << ", dropout=" << options.dropout();
  }
  if (options.scale()) {
    stream << ", scale=" << *options.scale();
  }
  if (options.seed()) {
    stream << ", seed=" << *options.seed();
  }
  stream << ")";
}

at::Tensor HeadImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
  check_input("Head::forward", x);
  return mini::scaled_dot_product_attention(query(x), key(x), value(x), attention_options(mask));
}

AttentionSteps HeadImpl::attention_steps(const at::Tensor& x,
                                         const std::optional<at::Tensor>& mask) {
  check_input("Head::attention_steps", x);
  return mini::attention_steps(query(x), key(x), value(x), attention_options(mask));
}

void HeadImpl::check_input(const char* function, const at::Tensor& x) const {
  TORCH_CHECK(x.defined(), function, ": expected x (..., T, C), got an undefined tensor");
  TORCH_CHECK(x.dim() >= 2 && x.size(-1) == options.n_embd(), function,
              ": expected x (..., T, C) with C = n_embd = ", options.n_embd(), ", got ", x.sizes());
  TORCH_CHECK(x.scalar_type() == query->weight.scalar_type(), function,
              ": x and the weights must share a dtype, got x ", x.scalar_type(), " and weights ",
              query->weight.scalar_type());
  TORCH_CHECK(x.device() == query->weight.device(), function,
              ": x and the weights must be on one device, got x ", x.device(), " and weights ",
              query->weight.device());
}

AttentionOptions HeadImpl::attention_options(const std::optional<at::Tensor>& mask) const {
  return {.mask = mask,
          .scale = options.scale(),
          .causal = options.causal() ? Causal::kLowerRight : Causal::kNone,
          .dropout = options.dropout(),
          .training = is_training()};
}

}  // namespace mini
