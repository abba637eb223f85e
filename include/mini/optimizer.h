// SPDX-License-Identifier: MIT
// The AdamW optimizer for any module: parameter groups with and without weight decay, a fused step,
// and the optimizer's state as named tensors.
//
// Paper   Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>
#include <torch/ordered_dict.h>

#include <string>
#include <vector>

#include "mini/export.h"

namespace mini {

/// Returns the parameters of `module` that require a gradient, in two groups.
///
/// The first group holds the parameters with two or more dimensions and decays them by
/// `options.weight_decay()`. The second group holds vectors and scalars, such as biases and norms,
/// and has a weight decay of 0. Both groups use the other options unchanged. A tied parameter is
/// listed once.
///
///     const auto options = torch::optim::AdamWOptions(1e-3).weight_decay(0.1);
///     mini::AdamW optimizer(mini::decay_groups(*model, options), options);
MINI_API std::vector<torch::optim::OptimizerParamGroup> decay_groups(
    const torch::nn::Module& module, const torch::optim::AdamWOptions& options);

/// LibTorch's AdamW with a fused step: one operation for each group, where LibTorch's class runs
/// about a dozen operations for each parameter.
///
/// Options, groups, state and saved files are those of `torch::optim::AdamW`. Results differ from
/// LibTorch's in the last bits.
///
/// The moments have the dtype and device of their parameter. If `Module::to` changes these, the
/// next step converts the moments and the gradient.
class MINI_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  /// Updates the parameters that have a gradient. If `closure` is given, calls it first with
  /// gradients enabled and returns its loss; otherwise returns an undefined tensor.
  /// Throws c10::Error if a gradient is not dense, or if the elements of a parameter overlap or
  /// have gaps between them, as in a slice.
  at::Tensor step(LossClosure closure = nullptr) override;
};

/// Returns the state of `optimizer` as tensors that are named after the parameters of `module`:
/// - `NAME.step`, an int64 scalar, for every parameter of the optimizer;
/// - `NAME.exp_avg` and `NAME.exp_avg_sq`, if the step is above 0;
/// - `NAME.max_exp_avg_sq`, if the step is above 0 and amsgrad is set.
///
/// These moments have the parameter's shape and dtype.
///
/// The moments share the optimizer's memory, unless the parameter's dtype has changed since the
/// last step. Options such as the learning rate are not included.
///
/// Throws c10::Error if the optimizer holds a parameter that is not in `module`.
MINI_API torch::OrderedDict<std::string, at::Tensor> optimizer_state_dict(
    const torch::optim::AdamW& optimizer, const torch::nn::Module& module);

/// Replaces the state of `optimizer` with a copy of `tensors`, the result of
/// `optimizer_state_dict`. With equal parameters, options and gradients, `optimizer` then makes the
/// same updates as the saved one, bit for bit.
///
/// Throws one c10::Error that lists every tensor that is missing, unexpected, or of a wrong shape
/// or dtype. Throws c10::Error if the optimizer holds a parameter that is not in `module`. On
/// error, the optimizer is unchanged.
MINI_API void load_optimizer_state_dict(torch::optim::AdamW& optimizer,
                                        const torch::nn::Module& module,
                                        const torch::OrderedDict<std::string, at::Tensor>& tensors);

}  // namespace mini
