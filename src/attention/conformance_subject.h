// SPDX-License-Identifier: MIT
// A function under test by the conformance checks: inputs for it, calls of it, and what its results
// are compared with.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/formula.h"
#include "mini/conformance.h"

namespace mini::detail {

using at::Tensor;
using Sizes = std::vector<int64_t>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Arguments {
  Tensor q, k, v;
  AttentionOptions options = {};
};

inline bool is_half(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// The unit roundoff of a dtype.
inline double roundoff(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::ldexp(1.0, -53);
    case at::kHalf:
      return std::ldexp(1.0, -11);
    case at::kBFloat16:
      return std::ldexp(1.0, -8);
    default:
      return std::ldexp(1.0, -24);
  }
}

/// The function under test, and the first failure of the current point.
class Subject {
 public:
  Subject(const AttentionFunction& function, const ConformanceOptions& options)
      : device(options.device), dtype(options.dtype), function_(function) {}

  // ---- Inputs. Every tensor has the dtype and device of the point.

  Tensor tensor(const Tensor& values) const { return values.to(device, dtype); }
  Tensor rows(std::vector<double> values, int64_t width) const {
    return tensor(at::tensor(values, at::kDouble).view({1, -1, width}));
  }
  // From N(0, 1).
  Tensor draw(const Sizes& sizes) { return tensor(at::randn(sizes, generator_, at::kDouble)); }
  Arguments inputs(Sizes leading, int64_t Tq, int64_t Tk, int64_t d_k, int64_t d_v) {
    const auto sizes = [&](int64_t rows, int64_t width) {
      Sizes all = leading;
      all.insert(all.end(), {rows, width});
      return all;
    };
    return {draw(sizes(Tq, d_k)), draw(sizes(Tk, d_k)), draw(sizes(Tk, d_v))};
  }
  // A bool mask that hides about a third of the keys, but not the first one.
  Tensor keep(const Sizes& sizes) {
    Tensor mask = draw(sizes).gt(-0.4);
    mask.select(-1, 0).fill_(true);
    return mask;
  }
  Tensor bools(std::vector<int> values, const Sizes& sizes) const {
    return at::tensor(values).view(sizes).to(device, at::kBool);
  }

  // ---- Calls.

  Tensor call(const Arguments& in) const { return function_(in.q, in.k, in.v, in.options); }

  // The gradients of sum(output * upstream). Gradients of unused inputs are zeros.
  std::vector<Tensor> gradients(const Arguments& in, const std::vector<Tensor>& leaves,
                                const Tensor& upstream) {
    const Tensor output = call(in);
    if (!output.requires_grad()) {
      fail("no gradient", "the output does not require a gradient");
      std::vector<Tensor> none;
      for (const Tensor& leaf : leaves) none.push_back(at::zeros_like(leaf));
      return none;
    }
    auto found = torch::autograd::grad({output}, leaves, {upstream}, std::nullopt,
                                       /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!found[i].defined()) found[i] = at::zeros_like(leaves[i]);
    }
    return found;
  }

  // ---- Expectations. Each records the first failure.

  void fail(std::string what, std::string details) {
    if (actual.empty()) {
      actual = std::move(what);
      detail = std::move(details);
    }
  }

  void equal_values(const Tensor& got, const Tensor& expected, double rtol, double atol) {
    if (!got.defined()) return fail("an undefined tensor", "");
    if (!got.sizes().equals(expected.sizes())) {
      return fail("another shape", c10::str("expected ", expected.sizes(), ", got ", got.sizes()));
    }
    const Tensor a = got.detach().to(at::kCPU, at::kDouble).flatten();
    const Tensor e = expected.detach().to(at::kCPU, at::kDouble).flatten();
    if (at::allclose(a, e, rtol, atol, /*equal_nan=*/true)) return;
    const Tensor error = (a - e).abs().nan_to_num(kInfinite, kInfinite);
    const auto worst = error.argmax().item<int64_t>();
    const bool is_nan = a.isnan().logical_and(e.isnan().logical_not()).any().item<bool>();
    fail(is_nan ? "NaN" : "other values",
         c10::str("at flat index ", worst, " of ", got.sizes(), ": expected ",
                  e[worst].item<double>(), ", got ", a[worst].item<double>()));
  }
  void same(const Tensor& got, const Tensor& expected) { equal_values(got, expected, 0.0, 0.0); }
  // Within the rounding of the dtype. float32 accumulates a few hundred roundings; the half types
  // round a float32 result once.
  void close(const Tensor& got, const Tensor& expected) {
    const double unit = roundoff(dtype);
    is_half(dtype) ? equal_values(got, expected, 1.01 * unit, 1e-5)
                   : equal_values(got, expected, 100 * unit, 30 * unit);
  }
  void close_gradient(const Tensor& got, const Tensor& expected) {
    const double unit = roundoff(dtype);
    is_half(dtype) ? equal_values(got, expected, 3 * unit, 1e-3)
                   : equal_values(got, expected, 500 * unit, 200 * unit);
  }

  // The output of `in` against the formula.
  void follows_formula(const Arguments& in) { close(call(in), formula(in).output); }

  FormulaResult formula(const Arguments& in, const Tensor& upstream = {}) const {
    Sizes sizes = in.q.sizes().vec();
    sizes.back() = in.v.size(-1);
    return attention_formula(in.q, in.k, in.v, in.options,
                             upstream.defined() ? upstream : at::zeros(sizes, at::kDouble));
  }

  void gradients_follow_formula(Arguments in, const Tensor& given_upstream = {}) {
    in = {in.q.detach().requires_grad_(), in.k.detach().requires_grad_(),
          in.v.detach().requires_grad_(), in.options};
    Sizes sizes = in.q.sizes().vec();
    sizes.back() = in.v.size(-1);
    const Tensor upstream = given_upstream.defined() ? given_upstream : draw(sizes);
    const auto found = gradients(in, {in.q, in.k, in.v}, upstream);
    const FormulaResult expected = formula(in, upstream);
    close_gradient(found[0], expected.dq);
    close_gradient(found[1], expected.dk);
    close_gradient(found[2], expected.dv);
  }

  void refuses(const Arguments& in, const char* what) {
    try {
      call(in);
    } catch (const c10::Error&) {
      return;
    } catch (const std::exception& error) {
      return fail("another exception", c10::str(what, ": ", error.what()));
    }
    fail("no error", what);
  }

  at::Device device;
  at::ScalarType dtype;
  std::string actual, detail;  // of the first failure; empty if there is none

 private:
  const AttentionFunction& function_;
  at::Generator generator_ = at::make_generator<at::CPUGeneratorImpl>(uint64_t{1});
};

}  // namespace mini::detail
