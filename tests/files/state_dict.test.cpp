// SPDX-License-Identifier: MIT
#include "mini/state_dict.h"

#include <cstddef>
#include <string>
#include <vector>

#include "support/state_dict_support.h"
#include "support/support.h"

using mini::load_state_dict;
using mini::state_dict;
using mini::test::check_same_tensors;
using mini::test::ContainsSubstring;
using mini::test::copy_of;
using mini::test::Equals;
using mini::test::error_of_loading;
using mini::test::NameList;
using mini::test::Net;
using mini::test::NetImpl;
using mini::test::renamed;
using mini::test::Tensors;

namespace {

Tensors prefixed(const std::string& prefix, const Tensors& tensors) {
  Tensors result;
  for (const auto& item : tensors) result.insert(prefix + item.key(), item.value());
  return result;
}

}  // namespace

TEST_CASE("state_dict returns parameters and buffers by their dotted names", "[state_dict]") {
  Net net;
  const Tensors tensors = state_dict(*net);
  CHECK(tensors.keys() == NameList{"scale", "fc.weight", "tail.0.weight", "tail.0.bias",
                                   "tail.1.weight", "tail.1.bias", "tail.0.running_mean",
                                   "tail.0.running_var", "tail.0.num_batches_tracked"});
  for (const auto& item : tensors) CHECK_FALSE(item.value().requires_grad());
  tensors["fc.weight"].fill_(5);  // the module's own memory
  CHECK_THAT(net->fc->weight, Equals(at::full({2, 3}, 5)));
}

TEST_CASE("load_state_dict copies every value into the existing tensors", "[state_dict]") {
  Net source, target;
  source->tail[0]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(3);
  source->tail[0]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.fill_(4);
  const std::vector<at::Tensor> parameters = target->parameters();
  const auto result = load_state_dict(*target, state_dict(*source));

  check_same_tensors(state_dict(*target), state_dict(*source));
  CHECK(result.missing.empty());
  CHECK(result.unexpected.empty());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(target->parameters()[i].is_same(parameters[i]));
    CHECK(parameters[i].requires_grad());
  }
  source->fc->weight.detach().zero_();
  CHECK(target->fc->weight.abs().sum().item<double>() > 0);  // a copy, not shared
}

TEST_CASE("load_state_dict accepts a module on the stack and one of another dtype",
          "[state_dict]") {
  Net source;
  NetImpl target;
  target.to(torch::kDouble);
  load_state_dict(target, state_dict(*source), {.convert_dtype = true});
  CHECK(target.fc->weight.scalar_type() == at::kDouble);
  CHECK_THAT(target.fc->weight, Equals(source->fc->weight.to(at::kDouble)));
}

TEST_CASE("load_state_dict lists all problems in one error and changes nothing", "[state_dict]") {
  Net net;
  const Tensors before = copy_of(state_dict(*net));
  Tensors given;
  given.insert("scale", at::zeros({1}));
  given.insert("fc.weight", at::zeros({3, 2}));
  given.insert("tail.0.weight", at::zeros({2}, at::kDouble));
  given.insert("tail.0.bias", at::Tensor());
  given.insert("tail.1.weight", at::zeros({1, 2}));  // the only valid one
  given.insert("tail.0.running_mean", at::zeros({2}, at::kMeta));
  given.insert("tail.0.running_var", at::zeros({2}));
  given.insert("head.weight", at::zeros({2}));
  const std::string error = error_of_loading(*net, given);
  CHECK_THAT(error, ContainsSubstring("load_state_dict: the tensors do not fit the module:"));
  CHECK_THAT(error, ContainsSubstring("\n  unexpected: head.weight"));
  CHECK_THAT(error, ContainsSubstring("\n  missing: tail.1.bias [1]"));
  CHECK_THAT(error, ContainsSubstring("\n  missing: tail.0.num_batches_tracked []"));
  CHECK_THAT(error, ContainsSubstring("\n  scale: wrong shape, expected [], got [1]"));
  CHECK_THAT(error, ContainsSubstring("\n  fc.weight: wrong shape, expected [2, 3], got [3, 2]"));
  CHECK_THAT(error,
             ContainsSubstring("\n  tail.0.weight: wrong dtype, expected Float, got Double"));
  CHECK_THAT(error, ContainsSubstring("\n  tail.0.bias: undefined"));
  CHECK_THAT(error, ContainsSubstring("\n  tail.0.running_mean: without memory (meta)"));
  check_same_tensors(state_dict(*net), before);

  torch::nn::Module expanded;
  expanded.register_parameter("first", at::zeros({2}));
  expanded.register_buffer("second", at::zeros({1}).expand({3}));
  Tensors ones;
  ones.insert("first", at::ones({2}));
  ones.insert("second", at::ones({3}));
  CHECK_THAT(error_of_loading(expanded, ones),
             ContainsSubstring("second: expanded in the module: its elements share memory"));
  CHECK(expanded.named_parameters()["first"].eq(0).all().item<bool>());

  torch::nn::Module on_meta;
  on_meta.register_parameter("weight", at::empty({2}, at::kMeta));
  given.clear();
  given.insert("weight", at::zeros({2}));
  CHECK_THAT(error_of_loading(on_meta, given), ContainsSubstring("weight: without memory (meta)"));
}

TEST_CASE("without strict, load_state_dict returns missing and unexpected names", "[state_dict]") {
  Net source, target;
  const Tensors given = renamed(state_dict(*source), "fc.weight", "head.weight");
  const at::Tensor before = target->fc->weight.detach().clone();
  const auto result = load_state_dict(*target, given, {.strict = false});
  CHECK(result.missing == NameList{"fc.weight"});
  CHECK(result.unexpected == NameList{"head.weight"});
  CHECK_THAT(target->fc->weight, Equals(before));
  CHECK_THAT(target->tail[1]->as<torch::nn::Linear>()->weight,
             Equals(source->tail[1]->as<torch::nn::Linear>()->weight));

  Tensors wrong;
  wrong.insert("scale", at::zeros({7}));
  CHECK_THAT(error_of_loading(*target, wrong, {.strict = false}),
             ContainsSubstring("scale: wrong shape, expected [], got [7]"));
}

TEST_CASE("load_state_dict removes the prefixes of wrappers repeatedly", "[state_dict]") {
  Net source;
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    INFO(prefix);
    Net target;
    load_state_dict(*target, prefixed(prefix, state_dict(*source)));
    check_same_tensors(state_dict(*target), state_dict(*source));
  }
  Net target;
  CHECK_THAT(error_of_loading(*target, prefixed("model.", state_dict(*source))),
             ContainsSubstring("unexpected: model.fc.weight"));
  load_state_dict(*target, prefixed("model.", state_dict(*source)), {.prefixes = {"model."}});
  CHECK_THAT(error_of_loading(*target, prefixed("module.", state_dict(*source)), {.prefixes = {}}),
             ContainsSubstring("unexpected: module.fc.weight"));
  CHECK_THAT(error_of_loading(*target, prefixed("x.", state_dict(*source)), {.prefixes = {""}}),
             ContainsSubstring("unexpected: x.fc.weight"));
}

TEST_CASE("load_state_dict keeps a prefix that is part of the module's own name", "[state_dict]") {
  struct Wrapper : torch::nn::Module {
    Wrapper() {
      outer = register_module("fc", torch::nn::Linear(1, 1));
      inner = register_module("module", Net())->fc;
    }
    torch::nn::Linear outer{nullptr}, inner{nullptr};
  };
  Wrapper source, target;
  load_state_dict(target, state_dict(source));
  check_same_tensors(state_dict(target), state_dict(source));
}

TEST_CASE("load_state_dict ignores tensors whose names have the given endings", "[state_dict]") {
  Net source, target;
  Tensors given = state_dict(*source);
  given.insert("h.0.attn.bias", at::ones({1, 1, 4, 4}));
  given.insert("h.0.attn.masked_bias", at::scalar_tensor(-1e4));
  CHECK_THAT(error_of_loading(*target, given), ContainsSubstring("unexpected: h.0.attn.bias"));
  const auto result =
      load_state_dict(*target, given, {.ignored_endings = {".attn.bias", ".attn.masked_bias"}});
  CHECK(result.unexpected.empty());
  check_same_tensors(state_dict(*target), state_dict(*source));

  CHECK_THAT(error_of_loading(*target, given, {.ignored_endings = {".attn.bias", "fc.weight"}}),
             ContainsSubstring("missing: fc.weight [2, 3]"));
  CHECK_THAT(
      error_of_loading(*target, given, {.ignored_endings = {".attn", ".attn.masked_bias"}}),
      ContainsSubstring("unexpected: h.0.attn.bias"));  // ".attn" is not at the end of the name
}

TEST_CASE("load_state_dict converts dtypes only if asked and only if a cast exists",
          "[state_dict]") {
  Net net;
  Tensors halves;
  for (const auto& item : state_dict(*net)) {
    halves.insert(item.key(), item.value().is_floating_point() ? item.value().to(at::kHalf)
                                                               : item.value().clone());
  }
  CHECK_THAT(error_of_loading(*net, halves),
             ContainsSubstring("fc.weight: wrong dtype, expected Float, got Half"));
  load_state_dict(*net, halves, {.convert_dtype = true});
  CHECK(net->fc->weight.scalar_type() == at::kFloat);
  CHECK_THAT(net->fc->weight, Equals(halves["fc.weight"].to(at::kFloat)));

  halves["tail.0.num_batches_tracked"] = at::scalar_tensor(1.5);
  CHECK_THAT(error_of_loading(*net, halves, {.convert_dtype = true}),
             ContainsSubstring("tail.0.num_batches_tracked: Float cannot become Long"));
}
