// SPDX-License-Identifier: MIT
#include "modules/functional.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/util/strides.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "attention/kernel_target.h"
#include "attention/packed_heads.h"
#include "kernels/block_kernel.h"

namespace mini::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEps = 1e-5;

// Whether the kernels can read the tensor's memory and compute its gradient.
bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat &&
         !at::isTensorSubclassLike(tensor) && !tensor.is_neg() && !tensor._fw_grad(0).defined();
}

bool needs_gradient(std::initializer_list<at::Tensor> tensors) {
  return at::GradMode::is_enabled() &&
         std::ranges::any_of(tensors, [](auto& t) { return t.defined() && t.requires_grad(); });
}

// Splits [0, n) into consecutive ranges and calls body(first, count) for each, in parallel if n >
// grain.
template <class Body>
void for_each_piece(int64_t n, int64_t grain, const Body& body) {
  at::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) { body(begin, end - begin); });
}

// ---- split_heads

// With the views alone, autograd would pad each gradient with zeros to the size of `packed` and add
// the three. Fused attention writes dq, dk and dv into one packed tensor, which the backward pass
// returns without a copy.
struct SplitHeads : public torch::autograd::Function<SplitHeads> {
  static variable_list forward(AutogradContext* /*context*/, const at::Tensor& packed,
                               int64_t n_head) {
    auto [q, k, v] = split_packed(packed, n_head);
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* /*context*/, const variable_list& upstream) {
    const at::Tensor &dq = upstream[0], &dk = upstream[1], &dv = upstream[2];
    if (at::GradMode::is_enabled() || at::areAnyTensorSubclassLike({dq, dk, dv})) {
      const auto rows = [](const at::Tensor& part) { return part.transpose(-3, -2).flatten(-2); };
      return {at::cat({rows(dq), rows(dk), rows(dv)}, -1), at::Tensor()};
    }
    const at::DimVector sizes = packed_sizes(dq);  // (..., T, 3 C)
    if (are_packed(dq, dk, dv)) {
      return {dq.as_strided(sizes, c10::contiguous_strides(sizes)), at::Tensor()};
    }
    const at::Tensor packed = at::empty(sizes, dq.options());
    const std::array<at::Tensor, 3> parts = split_packed(packed, dq.size(-3));
    for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(upstream[i]);
    return {packed, at::Tensor()};
  }
};

// ---- gelu

constexpr int64_t kGeluGrain = 1 << 14;  // elements: about 10 us

struct Gelu : public torch::autograd::Function<Gelu> {
  static at::Tensor run(const at::Tensor& given) {
    const at::Tensor x = given.contiguous();
    at::Tensor y = at::detail::empty_cpu(x.sizes(), at::kFloat);
    const auto* from = x.const_data_ptr<float>();
    auto* to = y.mutable_data_ptr<float>();
    for_each_piece(x.numel(), kGeluGrain,
                   [&](int64_t i, int64_t n) { kernels::gelu(from + i, n, to + i); });
    return y;
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return run(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const at::Tensor x = context->get_saved_variables()[0];
    if (needs_gradient({x, upstream[0]}) || !is_plain(upstream[0])) {
      return {at::gelu_backward(upstream[0], x)};
    }
    const at::Tensor dy = upstream[0].contiguous(), plain_x = x.contiguous();
    at::Tensor dx = at::detail::empty_cpu(x.sizes(), at::kFloat);
    for_each_piece(x.numel(), kGeluGrain, [&](int64_t i, int64_t n) {
      kernels::gelu_backward(dy.const_data_ptr<float>() + i, plain_x.const_data_ptr<float>() + i, n,
                             dx.mutable_data_ptr<float>() + i);
    });
    return {dx};
  }
};

// ---- layer_norm

int64_t rows_of(const at::Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

int64_t grain_of(int64_t width) { return 1 + (1 << 14) / width; }  // rows: about 10 us

kernels::Norm norm_of(const at::Tensor& weight, const at::Tensor& bias) {
  return {weight.const_data_ptr<float>(), bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          weight.size(0), static_cast<float>(kEps)};
}

struct NormOutput {
  at::Tensor y, mean, rstd;  // (..., C), (..., 1), (..., 1)
};

NormOutput run_layer_norm(const at::Tensor& given, const at::Tensor& weight,
                          const at::Tensor& bias) {
  const at::Tensor x = given.contiguous();
  at::DimVector sizes(x.sizes());
  sizes.back() = 1;
  NormOutput result{at::detail::empty_cpu(x.sizes(), at::kFloat),
                    at::detail::empty_cpu(sizes, at::kFloat),
                    at::detail::empty_cpu(sizes, at::kFloat)};
  const kernels::Norm norm = norm_of(weight, bias);
  for_each_piece(rows_of(x), grain_of(norm.width), [&](int64_t row, int64_t rows) {
    kernels::layer_norm(norm, x.const_data_ptr<float>() + row * norm.width, rows,
                        result.y.mutable_data_ptr<float>() + row * norm.width,
                        result.mean.mutable_data_ptr<float>() + row,
                        result.rstd.mutable_data_ptr<float>() + row);
  });
  return result;
}

// dx, dweight, dbias. The sums over rows are split into parts that depend only on the shape, so the
// bits do not depend on the number of threads.
variable_list run_layer_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                      const at::Tensor& weight, const at::Tensor& mean,
                                      const at::Tensor& rstd) {
  const kernels::Norm norm = norm_of(weight, {});
  const int64_t rows = rows_of(x), width = norm.width;
  const int64_t rows_of_part = std::max<int64_t>(64, (rows + 63) / 64);
  const int64_t parts = std::max<int64_t>((rows + rows_of_part - 1) / rows_of_part, 1);
  at::Tensor dx = at::detail::empty_cpu(x.sizes(), at::kFloat);
  at::Tensor sums = at::detail::empty_cpu({parts, 2, width}, at::kFloat);  // dweight and dbias
  for_each_piece(parts, 1 + grain_of(width) / rows_of_part, [&](int64_t first, int64_t count) {
    for (int64_t part = first; part < first + count; ++part) {
      const int64_t row = part * rows_of_part;
      auto* sum = sums.mutable_data_ptr<float>() + part * 2 * width;
      kernels::layer_norm_backward(norm,
                                   {.dy = dy.const_data_ptr<float>() + row * width,
                                    .x = x.const_data_ptr<float>() + row * width,
                                    .mean = mean.const_data_ptr<float>() + row,
                                    .rstd = rstd.const_data_ptr<float>() + row,
                                    .dx = dx.mutable_data_ptr<float>() + row * width,
                                    .dweight = sum,
                                    .dbias = sum + width},
                                   std::min(rows_of_part, rows - row));
    }
  });
  auto* total = sums.mutable_data_ptr<float>();
  for (int64_t part = 1; part < parts; ++part) {
    const float* added = total + part * 2 * width;
    for (int64_t i = 0; i < 2 * width; ++i) total[i] += added[i];
  }
  return {dx, sums[0][0].clone(), sums[0][1].clone()};
}

struct LayerNorm : public torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const NormOutput result = run_layer_norm(x, weight, bias.value_or(at::Tensor()));
    context->save_for_backward({x, weight, bias.value_or(at::Tensor()), result.mean, result.rstd});
    return result.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[3], &rstd = saved[4];
    const std::optional<at::Tensor> bias =
        saved[2].defined() ? std::optional(saved[2]) : std::nullopt;
    if (needs_gradient({x, weight, upstream[0]}) || !is_plain(upstream[0])) {
      auto [dx, dweight, dbias] = at::native_layer_norm_backward(
          upstream[0], x, weight.sizes(), mean, rstd, weight, bias, {true, true, bias.has_value()});
      return {dx, dweight, dbias};
    }
    variable_list gradients =
        run_layer_norm_backward(upstream[0].contiguous(), x.contiguous(), weight, mean, rstd);
    if (!bias) gradients[2] = at::Tensor();
    return gradients;
  }
};

}  // namespace

std::vector<at::Tensor> split_heads(const at::Tensor& packed, int64_t n_head) {
  if (is_plain(packed) && needs_gradient({packed})) return SplitHeads::apply(packed, n_head);
  auto [q, k, v] = split_packed(packed, n_head);
  return {q, k, v};
}

at::Tensor gelu(const at::Tensor& x, const std::string& approximate) {
  if (approximate != "none" || !is_plain(x)) return at::gelu(x, approximate);
  check_kernel_target();
  return needs_gradient({x}) ? Gelu::apply(x) : Gelu::run(x);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_plain(x) || !is_plain(weight) || !weight.is_contiguous() || weight.size(0) == 0 ||
      (bias.defined() && (!is_plain(bias) || !bias.is_contiguous()))) {
    return at::layer_norm(x, weight.sizes(), weight, bias, kEps);
  }
  check_kernel_target();
  return needs_gradient({x, weight, bias})
             ? LayerNorm::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt)
             : run_layer_norm(x, weight, bias).y;
}

}  // namespace mini::detail
