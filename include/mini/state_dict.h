// The tensors of any torch::nn::Module by name, as Python's state_dict and load_state_dict.
// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <map>
#include <string>
#include <vector>

#include "mini/export.h"

namespace torch::nn {
class Module;
}

namespace mini {

/// The parameters and buffers of `module` and of all modules in it, by their dotted names.
///
/// The tensors are detached and share the module's memory: clone() what has to outlast a change.
/// Each of `aliases` (further name -> a name of the module) is added as the same tensor, for
/// readers that expect a tied weight under two names.
///
/// Throws c10::Error for an alias of a name that the module does not have, or already has itself.
MINI_API torch::OrderedDict<std::string, at::Tensor> state_dict(
    const torch::nn::Module& module, const std::map<std::string, std::string>& aliases = {});

struct LoadStateDictOptions {
  /// Missing and unexpected names are errors.
  bool strict = true;
  /// Copies tensors of another dtype, converted; otherwise another dtype is an error.
  bool convert_dtype = false;
  /// Further names that the module's tensors may have: further name -> a name of the module.
  std::map<std::string, std::string> aliases = {};
  /// Removed from the front of a name, again and again, as long as the module does not know it.
  std::vector<std::string> prefixes = {"module.", "_orig_mod."};
  /// Names that end in one of these are passed over, such as the mask buffers of another
  /// implementation: {".attn.bias"}.
  std::vector<std::string> ignored_endings = {};
};

/// The names that did not meet; empty where `strict`.
struct LoadStateDictResult {
  std::vector<std::string> missing;     // of the module
  std::vector<std::string> unexpected;  // of the given tensors
};

/// Copies `tensors` into the parameters and buffers of `module` that have their names.
///
/// The module's tensors stay the same objects with the same dtype and device: optimizers keep
/// holding them, tied weights stay tied. A tensor that stands in the module under two names, or
/// has an alias, may be given under one of them or under several; then the values must be equal.
/// Gradients do not flow.
///
/// Two modules share a weight if both registered it, `register_parameter("weight", other->weight)`.
/// A mere `head->weight = other->weight` leaves the tensor registered that was there before, and
/// that is the one which is saved.
///
/// Throws c10::Error for an alias as `state_dict` does. Throws one c10::Error that lists everything
/// missing, unexpected, undefined, of a wrong shape or of a wrong dtype, and every tied tensor
/// given with two values. The module is unchanged then.
MINI_API LoadStateDictResult load_state_dict(
    torch::nn::Module& module, const torch::OrderedDict<std::string, at::Tensor>& tensors,
    const LoadStateDictOptions& options = {});

}  // namespace mini
