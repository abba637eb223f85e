// SPDX-License-Identifier: MIT
#include "mini/state_dict.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace mini {
namespace {

using TensorDict = torch::OrderedDict<std::string, at::Tensor>;

/// One tensor of the module, which may have several names, and the tensors given for it.
struct Target {
  std::string name;  // the first of its names
  at::Tensor tensor;
  std::vector<const TensorDict::Item*> given = {};
};

/// The parameters and buffers of `module`, not detached. LibTorch omits undefined tensors.
TensorDict registered_tensors(const torch::nn::Module& module) {
  TensorDict tensors = module.named_parameters();
  tensors.update(module.named_buffers());
  return tensors;
}

void check_aliases(const char* caller, const std::map<std::string, std::string>& aliases,
                   const TensorDict& tensors) {
  for (const auto& [alias, name] : aliases) {
    TORCH_CHECK(tensors.contains(name), caller, ": alias '", alias, "' names '", name,
                "', which the module does not have");
    TORCH_CHECK(!tensors.contains(alias), caller, ": alias '", alias,
                "' is already a name of the module");
  }
}

/// The tensors of a module, and a lookup by the names that a caller may use for them.
class Targets {
 public:
  Targets(const torch::nn::Module& module, const LoadStateDictOptions& options)
      : prefixes_(options.prefixes) {
    const TensorDict registered = registered_tensors(module);
    check_aliases("load_state_dict", options.aliases, registered);
    std::unordered_map<const c10::TensorImpl*, std::size_t> seen;
    for (const auto& item : registered) {
      const at::Tensor& tensor = item.value();
      const auto [place, is_new] = seen.emplace(tensor.unsafeGetTensorImpl(), targets_.size());
      if (is_new) targets_.push_back({.name = item.key(), .tensor = tensor});
      index_.emplace(item.key(), place->second);
    }
    for (const auto& [alias, name] : options.aliases) index_.emplace(alias, index_.at(name));
  }

  /// Returns null if the module has no tensor of that name, even without prefixes.
  Target* find(std::string_view name) {
    while (true) {
      const auto found = index_.find(std::string(name));
      if (found != index_.end()) return &targets_[found->second];
      const auto prefix = std::ranges::find_if(
          prefixes_, [&](const std::string& p) { return !p.empty() && name.starts_with(p); });
      if (prefix == prefixes_.end()) return nullptr;
      name.remove_prefix(prefix->size());
    }
  }

  std::vector<Target>& all() { return targets_; }

 private:
  const std::vector<std::string>& prefixes_;
  std::vector<Target> targets_;
  std::unordered_map<std::string, std::size_t> index_;  // by every name and alias
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || !a.sizes().equals(b.sizes())) return false;
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1).view(at::kByte);
  };
  return at::equal(bytes(a), bytes(b));  // compared as bytes, a NaN equals itself
}

/// The reason why `source` cannot be copied into `target`; "" if it can.
std::string mismatch(const at::Tensor& target, const at::Tensor& source, bool convert_dtype) {
  if (!source.defined()) return "undefined";
  if (source.is_meta() || target.is_meta()) return "without memory (meta)";
  if (!source.sizes().equals(target.sizes())) {
    return c10::str("wrong shape, expected ", target.sizes(), ", got ", source.sizes());
  }
  if (at::has_internal_overlap(target) == at::MemOverlap::Yes) {
    return "expanded in the module: its elements share memory";
  }
  if (source.scalar_type() == target.scalar_type()) return "";
  if (!convert_dtype) {
    return c10::str("wrong dtype, expected ", target.scalar_type(), ", got ", source.scalar_type());
  }
  if (!at::can_cast(source.scalar_type(), target.scalar_type())) {
    return c10::str(source.scalar_type(), " cannot become ", target.scalar_type());
  }
  return "";
}

}  // namespace

TensorDict state_dict(const torch::nn::Module& module,
                      const std::map<std::string, std::string>& aliases) {
  TensorDict tensors;
  for (const auto& item : registered_tensors(module)) {
    tensors.insert(item.key(), item.value().detach());
  }
  check_aliases("state_dict", aliases, tensors);
  for (const auto& [alias, name] : aliases) {
    tensors.insert(alias,
                   at::Tensor(tensors[name]));  // a copy, because insert() may move the others
  }
  return tensors;
}

LoadStateDictResult load_state_dict(torch::nn::Module& module, const TensorDict& tensors,
                                    const LoadStateDictOptions& options) {
  const at::NoGradGuard no_grad;
  LoadStateDictResult result;
  std::vector<std::string> problems;

  Targets targets(module, options);
  for (const TensorDict::Item& item : tensors) {
    const std::string& name = item.key();
    const auto ignored = [&](const std::string& ending) { return name.ends_with(ending); };
    if (std::ranges::any_of(options.ignored_endings, ignored)) continue;
    if (Target* target = targets.find(name)) {
      target->given.push_back(&item);
    } else {
      result.unexpected.push_back(name);
      if (options.strict) problems.push_back("unexpected: " + name);
    }
  }

  // All tensors are checked and converted before the first copy, so an error changes nothing.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const Target& target : targets.all()) {
    if (target.given.empty()) {
      result.missing.push_back(target.name);
      if (options.strict) {
        problems.push_back(c10::str("missing: ", target.name, " ", target.tensor.sizes()));
      }
      continue;
    }
    bool fits = true;
    for (const TensorDict::Item* given : target.given) {
      const std::string problem = mismatch(target.tensor, given->value(), options.convert_dtype);
      if (!problem.empty()) problems.push_back(given->key() + ": " + problem);
      fits = fits && problem.empty();
    }
    if (!fits) continue;
    const TensorDict::Item& first = *target.given.front();
    for (const TensorDict::Item* other : target.given) {
      if (!same_bits(first.value(), other->value())) {
        problems.push_back(first.key() + " and " + other->key() +
                           ": one tensor in the module, given with two values");
      }
    }
    copies.emplace_back(target.tensor, first.value().to(target.tensor.scalar_type()));
  }

  TORCH_CHECK(problems.empty(), "load_state_dict: the tensors do not fit the module:\n  ",
              c10::Join("\n  ", problems));
  for (auto& [target, source] : copies) target.copy_(source);
  return result;
}

}  // namespace mini
