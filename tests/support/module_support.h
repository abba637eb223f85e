// SPDX-License-Identifier: MIT
// What the tests of modules share.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/support.h"

namespace mini::test {

/// The module's own line, without the modules in it.
inline std::string printed(const torch::nn::Module& module) {
  std::ostringstream stream;
  module.pretty_print(stream);
  return stream.str();
}

inline std::vector<std::string> parameter_names(const torch::nn::Module& module) {
  return module.named_parameters().keys();
}

/// Gives every parameter of `module` new numbers, so that none is 0 or 1 as some are to begin with.
inline void scramble(const torch::nn::Module& module, double std, uint64_t seed) {
  torch::manual_seed(seed);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.add_(at::randn_like(parameter), std);
  }
}

/// The same parameters, name by name and bit by bit.
inline void check_same_parameters(const torch::nn::Module& actual,
                                  const torch::nn::Module& expected) {
  REQUIRE(parameter_names(actual) == parameter_names(expected));
  const auto parameters = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    INFO(item.key());
    CHECK_THAT(parameters[item.key()], Equals(item.value()));
  }
}

/// A copy that shares no memory.
template <typename Impl>
std::shared_ptr<Impl> clone_of(const torch::nn::ModuleHolder<Impl>& module) {
  auto clone = std::dynamic_pointer_cast<Impl>(module->clone());
  REQUIRE(clone);
  return clone;
}

}  // namespace mini::test
