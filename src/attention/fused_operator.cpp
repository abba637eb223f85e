// SPDX-License-Identifier: MIT
// Registers the private operators mini::_attention_forward and mini::_attention_backward.
//
// CPU       one pass of the fused kernel
// Meta      sizes of the results
// Autograd  gradients; second-order gradients come from the composite path
#include "attention/fused_operator.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "attention/attention_checks.h"
#include "attention/composite_attention.h"
#include "attention/fused_attention.h"

namespace mini::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kFunction = "scaled_dot_product_attention";

AttentionOptions make_options(const std::optional<Tensor>& mask, std::optional<double> scale,
                              int64_t causal, bool grouped_queries) {
  return {.mask = mask,
          .scale = scale,
          .causal = static_cast<Causal>(causal),
          .grouped_queries = grouped_queries};
}

// ---- _attention_forward

using ForwardSignature = std::tuple<Tensor, Tensor, Tensor>(const Tensor& q, const Tensor& k,
                                                            const Tensor& v,
                                                            const std::optional<Tensor>& mask,
                                                            std::optional<double> scale,
                                                            int64_t causal, bool grouped_queries);

const c10::TypedOperatorHandle<ForwardSignature>& forward_operator() {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("mini::_attention_forward", "")
                                 .typed<ForwardSignature>();
  return handle;
}

std::tuple<Tensor, Tensor, Tensor> forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const std::optional<Tensor>& mask,
                                               std::optional<double> scale, int64_t causal,
                                               bool grouped_queries) {
  const AttentionOptions options = make_options(mask, scale, causal, grouped_queries);
  check_attention_arguments(kFunction, q, k, v, options);
  const FusedOutput result = fused_attention_forward(q, k, v, options, /*keep_stats=*/true);
  return {result.output, result.softmax_stats,
          result.exact_output.defined() ? result.exact_output : at::empty({0}, q.options())};
}

std::tuple<Tensor, Tensor, Tensor> forward_meta(const Tensor& q, const Tensor& /*k*/,
                                                const Tensor& v,
                                                const std::optional<Tensor>& /*mask*/,
                                                std::optional<double> /*scale*/, int64_t /*causal*/,
                                                bool /*grouped_queries*/) {
  c10::SymDimVector sizes(q.sym_sizes());
  sizes.back() = v.sym_size(-1);
  const Tensor output = empty_in_layout_of(q, sizes, q.scalar_type());
  const Tensor exact_output = q.scalar_type() == at::kFloat
                                  ? at::empty({0}, q.options())
                                  : empty_in_layout_of(q, sizes, at::kFloat);
  sizes.end()[-2] = 2;
  sizes.back() = q.sym_size(-2);
  return {output, at::empty_symint(sizes, q.options().dtype(at::kFloat)), exact_output};
}

// ---- _attention_backward

using BackwardSignature = std::tuple<Tensor, Tensor, Tensor>(
    const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
    const Tensor& softmax_stats, const std::optional<Tensor>& mask, std::optional<double> scale,
    int64_t causal, bool grouped_queries);

const c10::TypedOperatorHandle<BackwardSignature>& backward_operator() {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("mini::_attention_backward", "")
                                 .typed<BackwardSignature>();
  return handle;
}

std::tuple<Tensor, Tensor, Tensor> backward_cpu(const Tensor& d_output, const Tensor& q,
                                                const Tensor& k, const Tensor& v,
                                                const Tensor& output, const Tensor& softmax_stats,
                                                const std::optional<Tensor>& mask,
                                                std::optional<double> scale, int64_t causal,
                                                bool grouped_queries) {
  const AttentionOptions options = make_options(mask, scale, causal, grouped_queries);
  // The results of an operator must not share memory.
  FusedGradients result = fused_attention_backward(d_output, q, k, v, {output, softmax_stats, {}},
                                                   options, /*packed=*/false);
  return {std::move(result.dq), std::move(result.dk), std::move(result.dv)};
}

std::tuple<Tensor, Tensor, Tensor> backward_meta(const Tensor& /*d_output*/, const Tensor& q,
                                                 const Tensor& k, const Tensor& v,
                                                 const Tensor& /*output*/,
                                                 const Tensor& /*softmax_stats*/,
                                                 const std::optional<Tensor>& /*mask*/,
                                                 std::optional<double> /*scale*/,
                                                 int64_t /*causal*/, bool /*grouped_queries*/) {
  const auto gradient = [](const Tensor& of) {
    return empty_in_layout_of(of, of.sym_sizes(), of.scalar_type());
  };
  return {gradient(q), gradient(k), gradient(v)};
}

// The gradients of the composite path, differentiable in q, k, v and d_output.
std::tuple<Tensor, Tensor, Tensor> differentiable_backward(const Tensor& d_output, const Tensor& q,
                                                           const Tensor& k, const Tensor& v,
                                                           const AttentionOptions& options) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  // Views, so that the gradient of q excludes paths through k and v, should they depend on q.
  const auto input = [](const Tensor& tensor) {
    return tensor.requires_grad() ? tensor.view_as(tensor) : tensor.detach().requires_grad_();
  };
  const variable_list inputs{input(q), input(k), input(v)};
  const Tensor output = composite_attention(inputs[0], inputs[1], inputs[2], options).output;
  variable_list gradients = torch::autograd::grad({output}, inputs, {d_output},
                                                  /*retain_graph=*/true, /*create_graph=*/true);
  return {gradients[0], gradients[1], gradients[2]};
}

std::tuple<Tensor, Tensor, Tensor> backward_autograd(
    const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
    const Tensor& softmax_stats, const std::optional<Tensor>& mask, std::optional<double> scale,
    int64_t causal, bool grouped_queries) {
  const bool second_order =
      at::GradMode::is_enabled() &&
      (d_output.requires_grad() || q.requires_grad() || k.requires_grad() || v.requires_grad());
  if (second_order) {
    return differentiable_backward(d_output, q, k, v,
                                   make_options(mask, scale, causal, grouped_queries));
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return backward_operator().call(d_output, q, k, v, output, softmax_stats, mask, scale, causal,
                                  grouped_queries);
}

// ---- Gradients of _attention_forward.

struct FusedAttention : public torch::autograd::Function<FusedAttention> {
  static variable_list forward(AutogradContext* context, const Tensor& q, const Tensor& k,
                               const Tensor& v, const std::optional<Tensor>& mask,
                               std::optional<double> scale, int64_t causal, bool grouped_queries) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [output, softmax_stats, exact_output] =
        forward_operator().call(q, k, v, mask, scale, causal, grouped_queries);
    context->save_for_backward({q, k, v, q.scalar_type() == at::kFloat ? output : exact_output,
                                softmax_stats, mask.value_or(Tensor())});
    context->mark_non_differentiable({softmax_stats, exact_output});
    context->saved_data["scale"] = scale;
    context->saved_data["causal"] = causal;
    context->saved_data["grouped_queries"] = grouped_queries;
    return {output, softmax_stats, exact_output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const FusedOutput result{saved[3], saved[4], {}};
    const std::optional<Tensor> mask = saved[5].defined() ? std::optional(saved[5]) : std::nullopt;
    const auto scale = context->saved_data["scale"].toOptional<double>();
    const int64_t causal = context->saved_data["causal"].toInt();
    const bool grouped_queries = context->saved_data["grouped_queries"].toBool();
    // The dispatcher is needed for second-order gradients, tracing and vmap.
    FusedGradients gradients;
    if (at::GradMode::is_enabled() || at::areAnyTensorSubclassLike({d_outputs[0], q, k, v})) {
      std::tie(gradients.dq, gradients.dk, gradients.dv) =
          backward_operator().call(d_outputs[0], q, k, v, result.output, result.softmax_stats, mask,
                                   scale, causal, grouped_queries);
    } else {
      gradients = fused_attention_backward(d_outputs[0], q, k, v, result,
                                           make_options(mask, scale, causal, grouped_queries),
                                           /*packed=*/true);
    }
    return {gradients.dq, gradients.dk, gradients.dv, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor, Tensor> forward_autograd(const Tensor& q, const Tensor& k,
                                                    const Tensor& v,
                                                    const std::optional<Tensor>& mask,
                                                    std::optional<double> scale, int64_t causal,
                                                    bool grouped_queries) {
  const variable_list results =
      FusedAttention::apply(q, k, v, mask, scale, causal, grouped_queries);
  return {results[0], results[1], results[2]};
}

}  // namespace

bool registers_operators() {
  // The first call, before any registration of this copy, decides.
  static const bool is_first_copy =
      !c10::Dispatcher::singleton().findSchema({"mini::_attention_forward", ""}).has_value();
  return is_first_copy;
}

Tensor dispatch_fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                const AttentionOptions& options) {
  return std::get<0>(forward_operator().call(q, k, v, options.mask, options.scale,
                                             static_cast<int64_t>(options.causal),
                                             options.grouped_queries));
}

TORCH_LIBRARY_FRAGMENT(mini, library) {
  if (!registers_operators()) return;
  library.def(
      "_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? mask, float? scale, "
      "int causal, bool grouped_queries) -> (Tensor output, Tensor softmax_stats, Tensor "
      "exact_output)");
  library.def(
      "_attention_backward(Tensor d_output, Tensor query, Tensor key, Tensor value, Tensor output, "
      "Tensor softmax_stats, Tensor? mask, float? scale, int causal, bool grouped_queries) "
      "-> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(mini, CPU, library) {
  if (!registers_operators()) return;
  library.impl("_attention_forward", forward_cpu);
  library.impl("_attention_backward", backward_cpu);
}

TORCH_LIBRARY_IMPL(mini, Meta, library) {
  if (!registers_operators()) return;
  library.impl("_attention_forward", forward_meta);
  library.impl("_attention_backward", backward_meta);
}

TORCH_LIBRARY_IMPL(mini, Autograd, library) {
  if (!registers_operators()) return;
  library.impl("_attention_forward", forward_autograd);
  library.impl("_attention_backward", backward_autograd);
}

}  // namespace mini::detail
