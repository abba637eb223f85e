// SPDX-License-Identifier: MIT
#include "mini/multi_head_attention.h"

#include <ATen/ops/dropout.h>

#include <ostream>
#include <utility>
#include <vector>

#include "modules/attention_options.h"
#include "modules/cache_rollback.h"
#include "modules/functional.h"
#include "modules/linear.h"
#include "modules/module_checks.h"
#include "modules/print_option.h"
#include "modules/seeded_init.h"

namespace mini {

using torch::nn::LinearOptions;

MultiHeadAttentionImpl::MultiHeadAttentionImpl(MultiHeadAttentionOptions options_,
                                               detail::Weights weights)
    : options(std::move(options_)) {
  build(weights);
}

void MultiHeadAttentionImpl::build(detail::Weights weights) {
  detail::check_heads("MultiHeadAttention", options.n_embd(), options.n_head());
  detail::check_dropout("MultiHeadAttention", options.dropout());
  detail::check_scale("MultiHeadAttention", options.scale());

  const int64_t C = options.n_embd();
  const auto generator = detail::seeded_generator(options.seed());
  c_attn = register_module(
      "c_attn",
      detail::make_linear(LinearOptions(C, 3 * C).bias(options.bias()), generator, weights));
  c_proj = register_module(
      "c_proj", detail::make_linear(LinearOptions(C, C).bias(options.bias()), generator, weights));
}

void MultiHeadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::MultiHeadAttention(n_embd=" << options.n_embd()
         << ", n_head=" << options.n_head();
  detail::print_option(stream, "bias", options.bias());
  detail::print_option(stream, "causal", options.causal());
  detail::print_option(stream, "dropout", options.dropout(), 0.0);
  detail::print_option(stream, "scale", options.scale());
  detail::print_option(stream, "seed", options.seed());
  stream << ")";
}

at::Tensor MultiHeadAttentionImpl::forward(const at::Tensor& x,
                                           const std::optional<at::Tensor>& mask, KvCache* cache) {
  detail::check_input("MultiHeadAttention::forward", x, options.n_embd(), c_attn->weight);
  const std::size_t caches = cache == nullptr ? 0 : 1;
  return detail::with_rollback({cache, caches}, [&] {
    Projections heads = project(x);  // (..., nh, T, hs)
    if (cache != nullptr) {
      cache->append(heads.k, heads.v);
      heads.k = cache->keys();    // (B, nh, Tk, hs)
      heads.v = cache->values();  // (B, nh, Tk, hs)
    }
    const at::Tensor outputs = mini::scaled_dot_product_attention(
        heads.q, heads.k, heads.v, detail::attention_options(options, mask, is_training()));
    const at::Tensor side_by_side = outputs.transpose(-3, -2).flatten(-2);  // (..., T, C)
    return at::dropout(detail::linear(side_by_side, c_proj), options.dropout(), is_training());
  });
}

AttentionSteps MultiHeadAttentionImpl::attention_steps(const at::Tensor& x,
                                                       const std::optional<at::Tensor>& mask) {
  detail::check_input("MultiHeadAttention::attention_steps", x, options.n_embd(), c_attn->weight);
  const auto [q, k, v] = project(x);  // (..., nh, T, hs)
  return mini::attention_steps(q, k, v, detail::attention_options(options, mask, is_training()));
}

MultiHeadAttentionImpl::Projections MultiHeadAttentionImpl::project(const at::Tensor& x) {
  detail::check_input("MultiHeadAttention::project", x, options.n_embd(), c_attn->weight);
  const std::vector<at::Tensor> qkv =
      detail::split_heads(detail::linear(x, c_attn), options.n_head());  // 3 times (..., nh, T, hs)
  return {qkv[0], qkv[1], qkv[2]};
}

}  // namespace mini
