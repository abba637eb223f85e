// SPDX-License-Identifier: MIT
// Checks that a function computes attention as mini/attention.h defines it.
//
// Shapes  B batch, T sequence (Tq queries, Tk keys), d_k = head_size, d_v.
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

/// The function to check: returns the output of attention.
using AttentionFunction = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k,
                                                   const at::Tensor& v, const AttentionOptions&)>;

/// What the function offers. A point that needs a feature that is false is not checked.
struct AttentionFeatures {
  /// q, k and v may differ in length, width, dtype and device. False for self-attention modules.
  bool separate_inputs = true;
  bool masks = true;
  bool scale = true;
  bool upper_left = true;   ///< `Causal::kUpperLeft`
  bool lower_right = true;  ///< `Causal::kLowerRight`
  bool grouped_queries = true;
  bool dropout = true;
  bool gradients = true;
  bool second_order = true;
  bool half_types = true;  ///< bfloat16 and float16
};

struct ConformanceOptions {
  at::Device device = at::kCPU;
  /// float32, float64, bfloat16 or float16. The points on one dtype use that dtype instead.
  at::ScalarType dtype = at::kFloat;
  AttentionFeatures features = {};
};

/// One rule of the contract, and whether the function follows the rule.
struct ConformancePoint {
  std::string rule;      ///< "a query that sees no key has output 0"
  bool passed = false;   ///< Whether every check of the rule succeeded.
  std::string expected;  ///< "0"
  std::string actual;    ///< "NaN"; empty if passed
  std::string detail;    ///< The first check that failed: shapes, numbers, or the error message.
};

/// Calls `function` with small inputs and compares the results with the contract of attention.
///
/// Returns one entry for each point of the contract that `options.features` allows, always in the
/// same order. Expected outputs and gradients are computed in float64 by loops over the formula.
/// Memory and speed are not checked.
///
/// An exception that `function` throws is a failed check, unless the contract requires an error. If
/// the contract requires one, `function` must throw c10::Error. LibTorch's random generators are
/// not used.
MINI_API std::vector<ConformancePoint> check_attention(const AttentionFunction& function,
                                                       const ConformanceOptions& options = {});

}  // namespace mini
