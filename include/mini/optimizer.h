// SPDX-License-Identifier: MIT
// AdamW for any module: which parameters decay, one operation a step, its state in named tensors.
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

/// The parameters of `module` that are trained, in two groups: those of two dimensions and more
/// decay by `options.weight_decay()`, vectors and scalars (biases, norms) do not. Both take the
/// other options as they are. A parameter that stands in the module twice is taken once, and one
/// without requires_grad not at all.
///
///     const auto options = torch::optim::AdamWOptions(1e-3).weight_decay(0.1);
///     mini::AdamW optimizer(mini::decay_groups(*model, options), options);
MINI_API std::vector<torch::optim::OptimizerParamGroup> decay_groups(
    const torch::nn::Module& module, const torch::optim::AdamWOptions& options);

/// LibTorch's AdamW, with its options, groups, state and files, whose step is one fused operation
/// for each group instead of a dozen small ones for each parameter.
///
/// The result differs from LibTorch's in the last bits. Parameters without a gradient are passed
/// over. `step` throws c10::Error for gradients that are not dense, and for parameters whose
/// elements are not all of their memory, such as a slice.
class MINI_API AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override;
};

/// The state of `optimizer` by the names that `module` gives its parameters: `NAME.step` for each,
/// int64, and where that is above 0 `NAME.exp_avg` and `NAME.exp_avg_sq` of the parameter's shape,
/// with amsgrad also `NAME.max_exp_avg_sq`.
///
/// The tensors share the optimizer's memory. Options (rates, decay) are no state.
/// Throws c10::Error for a parameter of the optimizer that the module does not have.
MINI_API torch::OrderedDict<std::string, at::Tensor> optimizer_state_dict(
    const torch::optim::AdamW& optimizer, const torch::nn::Module& module);

/// Copies what `optimizer_state_dict` gave into the state of `optimizer`, which then goes on as the
/// other would have.
///
/// Throws one c10::Error that lists everything missing, unexpected, or of a wrong shape or dtype.
/// The optimizer is unchanged then.
MINI_API void load_optimizer_state_dict(torch::optim::AdamW& optimizer,
                                        const torch::nn::Module& module,
                                        const torch::OrderedDict<std::string, at::Tensor>& tensors);

}  // namespace mini
