// SPDX-License-Identifier: MIT
#include "mini/head.h"

#include <c10/util/Exception.h>

#include <ostream>
#include <utility>

#include "modules/attention_options.h"
#include "modules/module_checks.h"
#include "modules/print_option.h"
#include "modules/seeded_init.h"

namespace mini {

HeadImpl::HeadImpl(HeadOptions options_) : options(std::move(options_)) { HeadImpl::reset(); }

void HeadImpl::reset() {
  TORCH_CHECK(options.n_embd() > 0 && options.head_size() > 0,
              "Head: expected n_embd and head_size above 0, got n_embd ", options.n_embd(),
              " and head_size ", options.head_size());
  detail::check_dropout("Head", options.dropout());
  detail::check_scale("Head", options.scale());

  const auto generator = detail::seeded_generator(options.seed());
  const auto shape = torch::nn::LinearOptions(options.n_embd(), options.head_size()).bias(false);
  query = register_module("query", detail::make_linear(shape, generator));
  key = register_module("key", detail::make_linear(shape, generator));
  value = register_module("value", detail::make_linear(shape, generator));
}

void HeadImpl::pretty_print(std::ostream& stream) const {
  stream << "mini::Head(n_embd=" << options.n_embd() << ", head_size=" << options.head_size();
  detail::print_option(stream, "causal", options.causal());
  detail::print_option(stream, "dropout", options.dropout(), 0.0);
  detail::print_option(stream, "scale", options.scale());
  detail::print_option(stream, "seed", options.seed());
  stream << ")";
}

at::Tensor HeadImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
  detail::check_input("Head::forward", x, options.n_embd(), query->weight);
  return mini::scaled_dot_product_attention(
      query(x), key(x), value(x), detail::attention_options(options, mask, is_training()));
}

AttentionSteps HeadImpl::attention_steps(const at::Tensor& x,
                                         const std::optional<at::Tensor>& mask) {
  detail::check_input("Head::attention_steps", x, options.n_embd(), query->weight);
  return mini::attention_steps(query(x), key(x), value(x),
                               detail::attention_options(options, mask, is_training()));
}

}  // namespace mini
