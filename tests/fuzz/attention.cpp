// SPDX-License-Identifier: MIT
// libFuzzer's target for attention. The bytes choose dtype, shapes, layouts, mask and options. A
// call must either be refused on every path, or have outputs and gradients within the error bound
// of the contract.
#include "mini/attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "memory_file.h"

using mini::AttentionOptions;
using mini::fuzz::require;

namespace {

struct Inputs {
  at::Tensor q, k, v;
};

/// Draws tensors of random layout, and everything else, from the bytes.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size)
      : bytes_(data, size),
        random_(at::make_generator<at::CPUGeneratorImpl>(bytes_.ConsumeIntegral<std::uint16_t>())) {
  }

  int64_t from(int64_t least, int64_t most) { return bytes_.ConsumeIntegralInRange(least, most); }
  bool flip() { return bytes_.ConsumeBool(); }

  /// Mostly the lengths at which the kernel changes its path.
  int64_t length() {
    constexpr int64_t kLengths[] = {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65};
    return flip() ? bytes_.PickValueInArray(kLengths) : from(0, 150);
  }
  int64_t width() {
    constexpr int64_t kWidths[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 32, 33, 40, 64, 80};
    return flip() ? bytes_.PickValueInArray(kWidths) : from(0, 140);
  }

  at::Tensor normal(const std::vector<int64_t>& shape, at::ScalarType dtype) {
    return laid_out(at::empty(shape, at::kDouble).normal_(0, 1, random_).to(dtype));
  }

  at::Tensor coins(const std::vector<int64_t>& shape, double probability) {
    return at::empty(shape, at::kBool).bernoulli_(probability, random_);
  }

  /// Whether a tensor repeats numbers.
  bool repeats() const { return repeats_; }

  /// Equal values in another layout. Expanded dimensions repeat their first entry.
  at::Tensor laid_out(const at::Tensor& tensor) {
    const int64_t dim = tensor.dim();
    const int64_t a = dim > 0 ? from(0, dim - 1) : 0, b = dim > 0 ? from(0, dim - 1) : 0;
    if (dim == 0) return tensor;
    switch (from(0, 5)) {
      case 0:
        return tensor.transpose(a, b).contiguous().transpose(a, b);
      case 1:  // every second entry of a longer tensor
        return at::stack({tensor, at::full_like(tensor, 99)}, a + 1).select(a + 1, 0);
      case 2:  // the middle of a wider tensor
        return at::cat({at::full_like(tensor, 99), tensor, at::full_like(tensor, 99)}, a)
            .narrow(a, tensor.size(a), tensor.size(a));
      case 3:
        repeats_ = true;
        return tensor.size(a) == 0 ? tensor : tensor.narrow(a, 0, 1).expand(tensor.sizes());
      case 4:
        return at::_neg_view(-tensor.contiguous());
      default:
        return tensor;
    }
  }

 private:
  FuzzedDataProvider bytes_;
  at::Generator random_;
  bool repeats_ = false;
};

struct Call {
  Inputs inputs;
  AttentionOptions options;
};

std::optional<at::Tensor> draw_mask(Source& source, const std::vector<int64_t>& leading, int64_t Tq,
                                    int64_t Tk) {
  std::vector<int64_t> shape = leading;
  shape.insert(shape.end(), {Tq, Tk});
  for (int64_t& size : shape) {
    if (source.from(0, 3) == 0) size = 1;
    if (source.from(0, 60) == 0) size += 1;  // refused
  }
  const auto dims = static_cast<int64_t>(shape.size());
  if (source.flip())
    shape.erase(shape.begin(), shape.end() - source.from(0, std::min<int64_t>(dims, 2)));
  constexpr double kVisible[] = {0.0, 0.1, 0.5, 0.95};
  const at::Tensor visible = source.coins(shape, kVisible[source.from(0, 3)]);
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  switch (source.from(0, 2)) {
    case 0:
      return std::nullopt;
    case 1:
      return source.flip() ? visible.transpose(0, -1).contiguous().transpose(0, -1) : visible;
    default:
      const at::Tensor added = source.normal(shape, kTypes[source.from(0, 3)]);
      return source.flip() ? added
                           : added.masked_fill(~visible, -std::numeric_limits<double>::infinity());
  }
}

Call draw_call(Source& source) {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kFloat, at::kBFloat16, at::kHalf};
  const at::ScalarType dtype = kTypes[source.from(0, 3)];
  std::vector<int64_t> leading;
  for (int64_t i = source.from(0, 3); i > 0; --i) leading.push_back(source.from(0, 2));
  const int64_t Tq = source.length(), Tk = source.length(), d_k = source.width();
  const int64_t d_v = source.flip() ? d_k : source.width();

  AttentionOptions options;
  options.causal = static_cast<mini::Causal>(source.from(0, 2));
  constexpr double kScales[] = {1.0, 0.0, -0.3, 0.125, 2.0};
  if (source.flip()) options.scale = kScales[source.from(0, 4)];
  options.grouped_queries = source.flip();
  std::vector<int64_t> query_leading = leading;
  if (options.grouped_queries && !leading.empty()) query_leading.back() *= source.from(0, 3);

  const auto shape = [&](std::vector<int64_t> sizes, int64_t rows, int64_t columns) {
    sizes.insert(sizes.end(), {rows, columns});
    if (source.from(0, 60) == 0) sizes[source.from(0, static_cast<int64_t>(sizes.size()) - 1)] += 1;
    return sizes;
  };
  Call call;
  call.options = options;
  call.inputs.q = source.normal(shape(query_leading, Tq, d_k), dtype);
  call.inputs.k = source.normal(shape(leading, Tk, d_k), dtype);
  call.inputs.v = source.normal(shape(leading, Tk, d_v), dtype);
  call.options.mask = draw_mask(source, query_leading, Tq, Tk);
  return call;
}

using Path = at::Tensor (*)(const Inputs&, const AttentionOptions&);

at::Tensor fused(const Inputs& in, const AttentionOptions& options) {
  return mini::scaled_dot_product_attention(in.q, in.k, in.v, options);
}
at::Tensor composite(const Inputs& in, const AttentionOptions& options) {
  return mini::attention_steps(in.q, in.k, in.v, options).output;
}

/// The output and, with an upstream gradient, the gradients of q, k and v, in float64.
/// Empty if the call is refused.
std::vector<at::Tensor> results(Path path, const Inputs& inputs, const AttentionOptions& options,
                                const at::Tensor& upstream) {
  // An alias keeps the strides, which clone() would not.
  const auto leaf = [](const at::Tensor& t) {
    return t.detach().alias().detach().requires_grad_();
  };
  const Inputs in{leaf(inputs.q), leaf(inputs.k), leaf(inputs.v)};
  at::Tensor output;
  try {
    output = path(in, options);
  } catch (const c10::Error&) {
    return {};
  }
  std::vector<at::Tensor> all = {output};
  if (upstream.defined()) {
    const auto gradients = torch::autograd::grad({output}, {in.q, in.k, in.v},
                                                 {upstream.to(output.scalar_type())}, {}, false,
                                                 /*allow_unused=*/true);
    const at::Tensor zero = at::zeros({1}, at::kDouble);
    for (const at::Tensor& gradient : gradients)
      all.push_back(gradient.defined() ? gradient : zero);
  }
  for (at::Tensor& tensor : all) tensor = tensor.detach().to(at::kDouble);
  return all;
}

double root_mean_square(const at::Tensor& t) { return t.square().mean().sqrt().item<double>(); }
double largest(const at::Tensor& t) { return t.abs().max().item<double>(); }

void check_call(Source& source) {
  const Call call = draw_call(source);
  const Inputs& in = call.inputs;
  at::Tensor output;
  {
    const at::NoGradGuard no_grad;
    try {
      output = fused(in, call.options);
    } catch (const c10::Error&) {
      require(results(composite, in, call.options, {}).empty(), "every path refuses the call");
      return;
    }
  }
  std::vector<int64_t> shape = in.q.sizes().vec();
  shape.back() = in.v.size(-1);
  require(output.sizes() == shape, "the output is (..., Tq, d_v)");
  require(output.scalar_type() == in.q.scalar_type(), "the output has the dtype of the inputs");

  const at::Tensor upstream = source.flip() ? source.normal(shape, in.q.scalar_type())
                                            : at::ones({}, in.q.scalar_type()).expand(shape);
  const auto ours = results(fused, in, call.options, upstream);
  const auto peer = results(composite, in, call.options, upstream);
  const Inputs wide{in.q.to(at::kDouble), in.k.to(at::kDouble), in.v.to(at::kDouble)};
  const auto exact = results(composite, wide, call.options, upstream);
  require(at::equal(ours[0], output.to(at::kDouble)), "gradients do not change the output");
  // The bound of 1e-6 holds for independent numbers and the default scale. If a tensor repeats
  // numbers, or the caller chooses the scale, scores are large and terms of the gradients cancel.
  // The rounding errors of these terms remain, so the bound grows with the terms.
  double terms = 0.1;
  if ((source.repeats() || call.options.scale) && output.numel() > 0 && in.k.numel() > 0) {
    terms = std::max(1.0, std::abs(call.options.scale.value_or(1.0))) * largest(upstream) *
            largest(in.v) * std::max(largest(in.q), largest(in.k)) *
            static_cast<double>(in.v.size(-1));
  }
  for (std::size_t i = 0; i < exact.size(); ++i) {
    require(ours[i].sizes() == exact[i].sizes(), "a gradient has the shape of its tensor");
    if (exact[i].numel() == 0) continue;
    require(ours[i].isfinite().all().item<bool>(), "results are finite");
    // As in tests/kernels/attention_kernel.test.cpp, the bound holds for the root mean square. The
    // largest of a few errors may exceed it.
    const double rounding = 1e-6 * std::max({1.0, largest(exact[i]), 10 * terms});
    const at::Tensor error = ours[i] - exact[i], peer_error = peer[i] - exact[i];
    const double bound = 2 * root_mean_square(peer_error) + rounding;
    const double largest_bound = 8 * (largest(peer_error) + rounding);
    if (root_mean_square(error) > bound || largest(error) > largest_bound) {
      std::fprintf(stderr, "result %zu: error %g, bound %g; largest %g, bound %g; numbers to %g\n",
                   i, root_mean_square(error), bound, largest(error), largest_bound,
                   largest(exact[i]));
    }
    require(root_mean_square(error) <= bound, "the error is within the bound");
    require(largest(error) <= largest_bound, "the largest error is within its bound");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Source source(data, size);
  check_call(source);
  return 0;
}
