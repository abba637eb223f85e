// SPDX-License-Identifier: MIT
// Reads and sets the tensors of a torch::nn::Module by name, as Python's state_dict() and
// load_state_dict() do.
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

/// Returns the parameters and buffers of `module` and of its submodules, by their dotted names.
///
/// The tensors are detached and share the module's memory. Clone a tensor that must not change with
/// the module. Each entry of `aliases` (alias -> name in the module) adds the same tensor under an
/// additional name, for readers that expect a tied weight under two names.
///
/// Throws c10::Error if an alias refers to a name that the module does not have, or is itself a
/// name in the module.
MINI_API torch::OrderedDict<std::string, at::Tensor> state_dict(
    const torch::nn::Module& module, const std::map<std::string, std::string>& aliases = {});

/// Options for `load_state_dict`.
struct LoadStateDictOptions {
  /// If true, missing and unexpected names are errors.
  bool strict = true;
  /// If true, tensors of another dtype are converted. If false, another dtype is an error.
  bool convert_dtype = false;
  /// Further names for tensors of the module: alias -> name in the module.
  std::map<std::string, std::string> aliases = {};
  /// Prefixes that wrappers add to names. They are removed from the front of a name, repeatedly,
  /// until the module has the name.
  std::vector<std::string> prefixes = {"module.", "_orig_mod."};
  /// Tensors whose names end in one of these are ignored, for example the mask buffers of another
  /// implementation: {".attn.bias"}.
  std::vector<std::string> ignored_endings = {};
};

/// The names without a counterpart. If `strict` is true, both lists are empty.
struct LoadStateDictResult {
  std::vector<std::string> missing;     // names of the module that were not given
  std::vector<std::string> unexpected;  // given names that the module does not have
};

/// Copies `tensors` into the parameters and buffers of `module` that have the same names.
///
/// The module's tensors remain the same objects, with the same dtype and device. Optimizers
/// therefore keep their references, and tied weights stay tied. If the module has a tensor under
/// two names or under an alias, the tensor may be given under one or several of these names. If it
/// is given more than once, the values must be equal. The copy is not recorded by autograd.
///
/// Two modules share a weight only if both registered it, as in
/// `register_parameter("weight", other->weight)`. The assignment `head->weight = other->weight`
/// does not register the tensor: `state_dict` and `load_state_dict` still use the old one.
///
/// Throws c10::Error for an invalid alias, as `state_dict` does. Throws one c10::Error that lists
/// all problems: names that are missing or unexpected, tensors that are undefined or have a wrong
/// shape or dtype, and tied tensors given with two values. After an error the module is unchanged.
MINI_API LoadStateDictResult load_state_dict(
    torch::nn::Module& module, const torch::OrderedDict<std::string, at::Tensor>& tensors,
    const LoadStateDictOptions& options = {});

}  // namespace mini
