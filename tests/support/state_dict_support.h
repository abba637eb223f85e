// SPDX-License-Identifier: MIT
// What the tests of state_dict and load_state_dict share: a module, and edits of named tensors.
#pragma once

#include <string>
#include <vector>

#include "mini/state_dict.h"
#include "support/error_of.h"
#include "support/support.h"

namespace mini::test {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using NameList = std::vector<std::string>;

/// A module with parameters, buffers, submodules, a layer without bias and an undefined buffer.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
    tail = register_module(
        "tail", torch::nn::Sequential(torch::nn::BatchNorm1d(2), torch::nn::Linear(2, 1)));
    scale = register_parameter("scale", torch::ones({}));
    absent = register_buffer("absent", torch::Tensor());
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::Sequential tail{nullptr};
  torch::Tensor scale, absent;
};
TORCH_MODULE(Net);

inline Tensors copy_of(const Tensors& tensors) {
  Tensors copy;
  for (const auto& item : tensors) copy.insert(item.key(), item.value().clone());
  return copy;
}

/// Returns `tensors` with the tensor `from` renamed to `to`.
inline Tensors renamed(const Tensors& tensors, const std::string& from, const std::string& to) {
  Tensors result;
  for (const auto& item : tensors) {
    result.insert(item.key() == from ? to : item.key(), item.value());
  }
  return result;
}

inline void check_same_tensors(const Tensors& actual, const Tensors& expected) {
  REQUIRE(actual.keys() == expected.keys());
  for (const auto& item : expected) {
    INFO(item.key());
    CHECK_THAT(actual[item.key()], Equals(item.value()));
  }
}

/// The message of the c10::Error that load_state_dict throws; "" if it throws none.
inline std::string error_of_loading(torch::nn::Module& module, const Tensors& tensors,
                                    const mini::LoadStateDictOptions& options = {}) {
  return error_of([&] { load_state_dict(module, tensors, options); });
}

}  // namespace mini::test
