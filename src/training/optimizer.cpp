// SPDX-License-Identifier: MIT
#include "mini/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace mini {
namespace {

using TensorDict = torch::OrderedDict<std::string, at::Tensor>;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::OptimizerParamGroup;

const AdamWOptions& options_of(const OptimizerParamGroup& group) {
  return static_cast<const AdamWOptions&>(group.options());
}

/// `tensor` with the dtype, device and strides of `parameter`, which may have changed since the
/// tensor was made, by `Module::to` for example. The fused operation requires equal dtypes and
/// ignores strides: it pairs the elements of its tensors by their place in memory.
at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& tensor) {
  if (tensor.scalar_type() == parameter.scalar_type() && tensor.device() == parameter.device() &&
      tensor.strides() == parameter.strides()) {
    return tensor;
  }
  return at::empty_like(parameter).copy_(tensor);
}

void allocate_moments(AdamWParamState& state, const at::Tensor& parameter, bool amsgrad) {
  state.exp_avg(at::zeros_like(parameter));
  state.exp_avg_sq(at::zeros_like(parameter));
  if (amsgrad) state.max_exp_avg_sq(at::zeros_like(parameter));
}

void fit_moments(AdamWParamState& state, const at::Tensor& parameter, bool amsgrad) {
  state.exp_avg(laid_out_as(parameter, state.exp_avg()));
  state.exp_avg_sq(laid_out_as(parameter, state.exp_avg_sq()));
  if (amsgrad) state.max_exp_avg_sq(laid_out_as(parameter, state.max_exp_avg_sq()));
}

/// The tensor arguments of one fused operation, for the parameters of one group.
struct FusedStep {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;

  void add(const at::Tensor& parameter, AdamWParamState& state, bool amsgrad) {
    const at::Tensor& gradient = parameter.grad();
    TORCH_CHECK(gradient.layout() == at::kStrided, "AdamW: expected dense gradients, got ",
                gradient.layout());
    TORCH_CHECK(parameter.is_non_overlapping_and_dense(),
                "AdamW: expected a non-overlapping and dense parameter, got sizes ",
                parameter.sizes(), " and strides ", parameter.strides());
    if (state.step() == 0) {
      allocate_moments(state, parameter, amsgrad);
    } else {
      fit_moments(state, parameter, amsgrad);
    }
    state.step(state.step() + 1);
    parameters.push_back(parameter);
    gradients.push_back(laid_out_as(parameter, gradient));
    exp_avgs.push_back(state.exp_avg());
    exp_avg_sqs.push_back(state.exp_avg_sq());
    if (amsgrad) max_exp_avg_sqs.push_back(state.max_exp_avg_sq());
    steps.push_back(at::full({}, state.step(), parameter.options().dtype(at::kFloat)));
  }
};

/// The first name of each parameter, since a tied parameter has several.
std::unordered_map<const c10::TensorImpl*, std::string> names_of(const torch::nn::Module& module) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const auto& item : module.named_parameters()) {
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  return names;
}

/// Calls `visit` with the name, the tensor and the options of each parameter of the optimizer.
template <typename Visit>
void for_each_parameter(const char* function, const torch::optim::AdamW& optimizer,
                        const torch::nn::Module& module, Visit visit) {
  const auto names = names_of(module);
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      TORCH_CHECK(name != names.end(), function,
                  ": expected an optimizer of the module's parameters, got a parameter of shape ",
                  parameter.sizes(), " that is not in the module");
      visit(name->second, parameter, options_of(group));
    }
  }
}

/// Adds the state of one parameter to `tensors`. The moments have the parameter's dtype; if that is
/// the dtype of the state, they share its memory.
void add_state(TensorDict& tensors, const std::string& name, const at::Tensor& parameter,
               const AdamWParamState& state) {
  tensors.insert(name + ".step", at::scalar_tensor(state.step(), at::kLong));
  const auto add = [&](const char* moment, const at::Tensor& tensor) {
    if (tensor.defined()) tensors.insert(name + moment, tensor.to(parameter.scalar_type()));
  };
  add(".exp_avg", state.exp_avg());
  add(".exp_avg_sq", state.exp_avg_sq());
  add(".max_exp_avg_sq", state.max_exp_avg_sq());
}

/// One line for each tensor that is missing, unexpected, or of another shape or dtype.
std::string mismatches(const TensorDict& expected, const TensorDict& tensors) {
  std::string list;
  for (const auto& item : expected) {
    const at::Tensor& want = item.value();
    const at::Tensor* got = tensors.find(item.key());
    if (got == nullptr || !got->defined()) {
      list += "\n  missing: " + item.key();
    } else if (!got->sizes().equals(want.sizes())) {
      list += c10::str("\n  ", item.key(), ": wrong shape, expected ", want.sizes(), ", got ",
                       got->sizes());
    } else if (got->scalar_type() != want.scalar_type()) {
      list += c10::str("\n  ", item.key(), ": wrong dtype, expected ", want.scalar_type(), ", got ",
                       got->scalar_type());
    }
  }
  for (const auto& item : tensors) {
    if (!expected.contains(item.key())) list += "\n  unexpected: " + item.key();
  }
  return list;
}

}  // namespace

std::vector<OptimizerParamGroup> decay_groups(const torch::nn::Module& module,
                                              const AdamWOptions& options) {
  std::vector<at::Tensor> decayed, others;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second)
      continue;
    (parameter.dim() >= 2 ? decayed : others).push_back(parameter);
  }
  AdamWOptions without_decay = options;
  without_decay.weight_decay(0.0);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::move(decayed), std::make_unique<AdamWOptions>(options));
  groups.emplace_back(std::move(others), std::make_unique<AdamWOptions>(without_decay));
  return groups;
}

at::Tensor AdamW::step(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  for (const OptimizerParamGroup& group : param_groups_) {
    const AdamWOptions& options = options_of(group);
    FusedStep fused;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto& state = state_[parameter.unsafeGetTensorImpl()];
      if (!state) state = std::make_unique<AdamWParamState>();
      fused.add(parameter, static_cast<AdamWParamState&>(*state), options.amsgrad());
    }
    if (fused.parameters.empty()) continue;
    const auto [beta1, beta2] = options.betas();
    at::_fused_adamw_(fused.parameters, fused.gradients, fused.exp_avgs, fused.exp_avg_sqs,
                      fused.max_exp_avg_sqs, fused.steps, options.lr(), beta1, beta2,
                      options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
  }
  return loss;
}

TensorDict optimizer_state_dict(const torch::optim::AdamW& optimizer,
                                const torch::nn::Module& module) {
  TensorDict tensors;
  const auto add = [&](const std::string& name, const at::Tensor& parameter, const AdamWOptions&) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    const bool is_new = found == optimizer.state().end();
    add_state(tensors, name, parameter,
              is_new ? AdamWParamState() : static_cast<const AdamWParamState&>(*found->second));
  };
  for_each_parameter("optimizer_state_dict", optimizer, module, add);
  return tensors;
}

void load_optimizer_state_dict(torch::optim::AdamW& optimizer, const torch::nn::Module& module,
                               const TensorDict& tensors) {
  const at::NoGradGuard no_grad;
  TensorDict expected;
  std::string problems;
  std::vector<std::pair<void*, std::unique_ptr<AdamWParamState>>> states;
  const auto add = [&](const std::string& name, const at::Tensor& parameter,
                       const AdamWOptions& options) {
    auto state = std::make_unique<AdamWParamState>();
    const at::Tensor* step = tensors.find(name + ".step");
    if (step != nullptr && step->scalar_type() == at::kLong && step->dim() == 0) {
      state->step(step->item<int64_t>());
    }
    if (state->step() < 0) {
      problems += c10::str("\n  ", name, ".step: expected at least 0, got ", state->step());
    } else if (state->step() > 0) {
      allocate_moments(*state, parameter, options.amsgrad());
    }
    add_state(expected, name, parameter, *state);
    states.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
  };
  for_each_parameter("load_optimizer_state_dict", optimizer, module, add);
  problems += mismatches(expected, tensors);
  TORCH_CHECK(problems.empty(),
              "load_optimizer_state_dict: the tensors do not fit the optimizer:", problems);

  // The moments in `expected` are those of `states`.
  for (auto& item : expected) item.value().copy_(tensors[item.key()]);
  optimizer.state().clear();
  for (auto& [parameter, state] : states) {
    if (state->step() > 0) optimizer.state()[parameter] = std::move(state);
  }
}

}  // namespace mini
