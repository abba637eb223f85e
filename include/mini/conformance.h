// SPDX-License-Identifier: MIT
// Checks whether a function computes attention by the contract of `scaled_dot_product_attention`.
//
//     const auto results = mini::check_attention(
//         [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
//            const mini::AttentionOptions& options) { return my_attention(q, k, v, options); });
//     for (const mini::ConformanceResult& result : results) {
//       if (result.status == mini::Conformance::kFails) std::cout << result.point << '\n';
//     }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "mini/attention.h"
#include "mini/export.h"

namespace mini {

/// A function with the arguments and the result of `scaled_dot_product_attention`.
///
/// If it does not support some arguments, it throws c10::NotImplementedError. Any other exception
/// means that it refuses the arguments as wrong.
using AttentionFunction =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionOptions& options)>;

enum class Conformance {
  kHolds,        ///< Every check of the point holds.
  kFails,        ///< A check does not hold.
  kUnsupported,  ///< The function supports none of the checks.
};

/// One point of the contract.
struct ConformanceResult {
  std::string point;  ///< "rows that see no key", for example
  std::string rule;   ///< what the contract demands
  Conformance status;
  std::string detail;  ///< for `kFails`: the first check that fails, with what came
};

struct ConformanceOptions {
  /// Device of all tensors.
  at::Device device = at::kCPU;
  /// Dtype of q, k and v; float32, float64, bfloat16 or float16.
  at::ScalarType dtype = at::kFloat;
};

/// Checks every point of the contract, in a fixed order. Takes seconds.
///
/// The expected values are explicit numbers, or `attention_steps` in float64 on the CPU. Outputs and
/// gradients may be wrong by twice the error of LibTorch's formula in the same dtype, plus 1e-6.
/// Random inputs come from a generator with a fixed seed; LibTorch's global generator is not used,
/// unless `attention` uses it for dropout.
/// Throws c10::Error if `dtype` is none of the four.
MINI_API std::vector<ConformanceResult> check_attention(const AttentionFunction& attention,
                                                        const ConformanceOptions& options = {});

}  // namespace mini
