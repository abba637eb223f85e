// SPDX-License-Identifier: MIT
// Tensors with several names: tied weights and aliases.
#include <map>
#include <memory>
#include <string>

#include "mini/state_dict.h"
#include "support/error_of.h"
#include "support/state_dict_support.h"
#include "support/support.h"

using mini::load_state_dict;
using mini::state_dict;
using mini::test::check_same_tensors;
using mini::test::ContainsSubstring;
using mini::test::copy_of;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::error_of_loading;
using mini::test::NameList;
using mini::test::Net;
using mini::test::renamed;
using mini::test::Tensors;

namespace {

/// A weight with two names, because one submodule is registered twice.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
    second = register_module("second", first.ptr());
  }
  torch::nn::Linear first{nullptr};
  std::shared_ptr<torch::nn::LinearImpl> second;
};
TORCH_MODULE(Tied);

/// Two tensors with two names each.
struct TiedWithBiasImpl : torch::nn::Module {
  TiedWithBiasImpl() {
    first = register_module("first", torch::nn::Linear(2, 2));
    register_module("second", first.ptr());
  }
  torch::nn::Linear first{nullptr};
};
TORCH_MODULE(TiedWithBias);

}  // namespace

TEST_CASE("a tied weight can be loaded from either name and stays tied", "[state_dict]") {
  Tied tied;
  CHECK(state_dict(*tied).keys() == NameList{"first.weight", "second.weight"});
  for (const char* name : {"first.weight", "second.weight"}) {
    INFO(name);
    Tensors given;
    given.insert(name, at::rand({2, 2}));
    load_state_dict(*tied, given);
    CHECK_THAT(tied->first->weight, Equals(given[name]));
    CHECK(tied->second->weight.is_same(tied->first->weight));
  }
  CHECK_THAT(error_of_loading(*tied, Tensors()), ContainsSubstring("missing: first.weight [2, 2]"));

  TiedWithBias two;
  Tensors given;
  given.insert("second.bias", at::rand({2}));
  given.insert("second.weight", at::rand({2, 2}));
  load_state_dict(*two, given);
  CHECK_THAT(two->first->weight, Equals(given["second.weight"]));
  CHECK_THAT(two->first->bias, Equals(given["second.bias"]));
}

TEST_CASE("a tied weight given under both names must have equal values", "[state_dict]") {
  Tied tied;
  Tensors given;
  given.insert("first.weight", at::tensor({1.0F, NAN, 3.0F, 4.0F}).view({2, 2}));
  given.insert("second.weight", given["first.weight"].clone());
  load_state_dict(*tied, given);
  CHECK_THAT(tied->first->weight, Equals(given["first.weight"]));

  given["second.weight"][1][1] = 5;
  CHECK_THAT(error_of_loading(*tied, given),
             ContainsSubstring("first.weight and second.weight: one tensor in the module, given "
                               "with two values"));
  CHECK_THAT(tied->first->weight, Equals(given["first.weight"]));

  given["second.weight"] = given["first.weight"].view(at::kInt);  // the same bits, other values
  CHECK_FALSE(error_of_loading(*tied, given, {.convert_dtype = true}).empty());

  given["second.weight"] = given["first.weight"].clone();
  for (const char* bad : {"first.weight", "second.weight"}) {
    Tensors one_bad = given;
    one_bad[bad] = at::zeros({3});
    CHECK(error_of_loading(*tied, one_bad) ==
          "load_state_dict: the tensors do not fit the module:\n  " + std::string(bad) +
              ": wrong shape, expected [2, 2], got [3]");
  }
}

TEST_CASE("an alias is another name for a tensor of the module", "[state_dict]") {
  const std::map<std::string, std::string> aliases = {{"head.weight", "fc.weight"}};
  Net source, target;
  const Tensors both = state_dict(*source, aliases);
  CHECK(both.size() == state_dict(*source).size() + 1);
  CHECK(both["head.weight"].is_alias_of(source->fc->weight));

  load_state_dict(*target, both, {.aliases = aliases});
  check_same_tensors(state_dict(*target), state_dict(*source));

  Net by_alias;
  load_state_dict(*by_alias, renamed(state_dict(*source), "fc.weight", "_orig_mod.head.weight"),
                  {.aliases = aliases});
  CHECK_THAT(by_alias->fc->weight, Equals(source->fc->weight));

  Tensors different = copy_of(both);
  different["head.weight"].add_(1);
  CHECK_THAT(error_of_loading(*target, different, {.aliases = aliases}),
             ContainsSubstring("fc.weight and head.weight: one tensor in the module"));
  CHECK_THAT(error_of_loading(*target, both), ContainsSubstring("unexpected: head.weight"));
}

TEST_CASE("an alias of an unknown name, or one that is already a name, is an error",
          "[state_dict]") {
  Net net;
  const auto error = [&](const std::string& alias, const std::string& name) {
    return error_of([&] { state_dict(*net, {{alias, name}}); });
  };
  CHECK_THAT(error("head.weight", "none"),
             ContainsSubstring("'head.weight' names 'none', which the module does not have"));
  CHECK_THAT(error("fc.weight", "scale"), ContainsSubstring("'fc.weight' is already a name"));
  CHECK_THAT(error_of_loading(*net, state_dict(*net), {.aliases = {{"head.weight", "none"}}}),
             ContainsSubstring("load_state_dict: alias 'head.weight' names 'none'"));
  CHECK_THAT(error_of_loading(*net, state_dict(*net), {.aliases = {{"fc.weight", "scale"}}}),
             ContainsSubstring("load_state_dict: alias 'fc.weight' is already a name"));
}
