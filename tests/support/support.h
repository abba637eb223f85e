// SPDX-License-Identifier: MIT
// Includes LibTorch and Catch2 together, and defines a matcher for tensors.
#pragma once

#include <torch/torch.h>

// LibTorch and Catch2 both define CHECK. Tests use Catch2's.
#undef CHECK
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
namespace mini::test {
using Catch::Matchers::ContainsSubstring;
template <typename T>
using MatcherBase = Catch::Matchers::MatcherBase<T>;
}  // namespace mini::test
#else
#include <catch2/catch.hpp>
namespace mini::test {
inline auto ContainsSubstring(const std::string& text) { return Catch::Contains(text); }
template <typename T>
using MatcherBase = Catch::MatcherBase<T>;
}  // namespace mini::test
#endif

#include <sstream>
#include <string>

template <>
struct Catch::StringMaker<at::Tensor> {
  static std::string convert(const at::Tensor& tensor) {
    std::ostringstream text;
    if (!tensor.defined()) {
      return "undefined tensor";
    }
    text << tensor.scalar_type() << ' ' << tensor.sizes();
    if (tensor.numel() <= 16) {
      text << ' ' << tensor;
    }
    return text.str();
  }
};

namespace mini::test {

/// The same shape, and each element within atol + rtol * |expected|. NaN equals NaN.
class AllClose : public MatcherBase<at::Tensor> {
 public:
  AllClose(at::Tensor expected, double rtol, double atol)
      : expected_(std::move(expected)), rtol_(rtol), atol_(atol) {}

  bool match(const at::Tensor& actual) const override {
    if (!actual.defined() || !actual.sizes().equals(expected_.sizes())) {
      difference_ = "; expected shape " + c10::str(expected_.sizes());
      return false;
    }
    const at::Tensor a = actual.detach().to(at::kDouble), e = expected_.detach().to(at::kDouble);
    if (at::allclose(a, e, rtol_, atol_, /*equal_nan=*/true)) {
      return true;
    }
    const at::Tensor error = (a - e).abs().nan_to_num(HUGE_VAL).flatten();
    const int64_t worst = error.argmax().item<int64_t>();
    difference_ =
        c10::str("; largest error ", error[worst].item<double>(), " at flat index ", worst, " of ",
                 actual.sizes(), ": got ", a.flatten()[worst].item<double>(), ", expected ",
                 e.flatten()[worst].item<double>());
    return false;
  }

  std::string describe() const override {
    return c10::str("is close to the expected tensor (rtol ", rtol_, ", atol ", atol_, ")",
                    difference_);
  }

 private:
  at::Tensor expected_;
  double rtol_, atol_;
  mutable std::string difference_;
};

/// The same shape and the same bits (NaN equals NaN).
inline AllClose Equals(at::Tensor expected) { return {std::move(expected), 0.0, 0.0}; }

}  // namespace mini::test
