// SPDX-License-Identifier: MIT
#include "mini/state_dict.h"

#include <string>
#include <utility>
#include <vector>

#include "support/support.h"

using mini::load_state_dict;
using mini::state_dict;
using mini::test::ContainsSubstring;
using mini::test::Equals;

namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using NameList = std::vector<std::string>;

/// Parameters, buffers, a bias that is not there, modules within modules.
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

/// One weight under two names, through a module that stands in two places.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
    second = register_module("second", first.ptr());
  }
  torch::nn::Linear first{nullptr};
  std::shared_ptr<torch::nn::LinearImpl> second;
};
TORCH_MODULE(Tied);

/// Two tensors, each under two names.
struct TiedWithBiasImpl : torch::nn::Module {
  TiedWithBiasImpl() {
    first = register_module("first", torch::nn::Linear(2, 2));
    register_module("second", first.ptr());
  }
  torch::nn::Linear first{nullptr};
};
TORCH_MODULE(TiedWithBias);

Tensors copy_of(const Tensors& tensors) {
  Tensors copy;
  for (const auto& item : tensors) copy.insert(item.key(), item.value().clone());
  return copy;
}

/// `tensors` with `from` under the name `to`.
Tensors renamed(const Tensors& tensors, const std::string& from, const std::string& to) {
  Tensors result;
  for (const auto& item : tensors) {
    result.insert(item.key() == from ? to : item.key(), item.value());
  }
  return result;
}

Tensors with_prefix(const std::string& prefix, const Tensors& tensors) {
  Tensors result;
  for (const auto& item : tensors) result.insert(prefix + item.key(), item.value());
  return result;
}

void check_same_tensors(const Tensors& actual, const Tensors& expected) {
  REQUIRE(actual.keys() == expected.keys());
  for (const auto& item : expected) {
    INFO(item.key());
    CHECK_THAT(actual[item.key()], Equals(item.value()));
  }
}

std::string error_of_loading(torch::nn::Module& module, const Tensors& tensors,
                             const mini::LoadStateDictOptions& options = {}) {
  try {
    load_state_dict(module, tensors, options);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace

TEST_CASE("state_dict gives parameters and buffers by their dotted names", "[state_dict]") {
  Net net;
  const Tensors tensors = state_dict(*net);
  CHECK(tensors.keys() == NameList{"scale", "fc.weight", "tail.0.weight", "tail.0.bias",
                                   "tail.1.weight", "tail.1.bias", "tail.0.running_mean",
                                   "tail.0.running_var", "tail.0.num_batches_tracked"});
  for (const auto& item : tensors) CHECK_FALSE(item.value().requires_grad());
  tensors["fc.weight"].fill_(5);  // the module's own memory
  CHECK_THAT(net->fc->weight, Equals(at::full({2, 3}, 5)));
}

TEST_CASE("load_state_dict copies every value into the tensors that are there", "[state_dict]") {
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

TEST_CASE("a module on the stack and one of another dtype are loaded too", "[state_dict]") {
  Net source;
  NetImpl target;
  target.to(torch::kDouble);
  load_state_dict(target, state_dict(*source), {.convert_dtype = true});
  CHECK(target.fc->weight.scalar_type() == at::kDouble);
  CHECK_THAT(target.fc->weight, Equals(source->fc->weight.to(at::kDouble)));
}

TEST_CASE("all problems come in one error, which changes nothing", "[state_dict]") {
  Net net;
  const Tensors before = copy_of(state_dict(*net));
  Tensors given;
  given.insert("scale", at::zeros({1}));
  given.insert("fc.weight", at::zeros({3, 2}));
  given.insert("tail.0.weight", at::zeros({2}, at::kDouble));
  given.insert("tail.0.bias", at::Tensor());
  given.insert("tail.1.weight", at::zeros({1, 2}));  // the only good one
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

  torch::nn::Module on_meta;
  on_meta.register_parameter("weight", at::empty({2}, at::kMeta));
  given.clear();
  given.insert("weight", at::zeros({2}));
  CHECK_THAT(error_of_loading(on_meta, given), ContainsSubstring("weight: without memory (meta)"));
}

TEST_CASE("without strict, what is missing or unexpected is returned", "[state_dict]") {
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

TEST_CASE("prefixes of wrappers are removed, again and again", "[state_dict]") {
  Net source;
  for (const char* prefix : {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    INFO(prefix);
    Net target;
    load_state_dict(*target, with_prefix(prefix, state_dict(*source)));
    check_same_tensors(state_dict(*target), state_dict(*source));
  }
  Net target;
  CHECK_THAT(error_of_loading(*target, with_prefix("model.", state_dict(*source))),
             ContainsSubstring("unexpected: model.fc.weight"));
  load_state_dict(*target, with_prefix("model.", state_dict(*source)), {.prefixes = {"model."}});
  CHECK_THAT(
      error_of_loading(*target, with_prefix("module.", state_dict(*source)), {.prefixes = {}}),
      ContainsSubstring("unexpected: module.fc.weight"));
  CHECK_THAT(error_of_loading(*target, with_prefix("x.", state_dict(*source)), {.prefixes = {""}}),
             ContainsSubstring("unexpected: x.fc.weight"));
}

TEST_CASE("a prefix that the module has itself stays", "[state_dict]") {
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

TEST_CASE("ignored endings pass over what the module does not have", "[state_dict]") {
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
  CHECK_THAT(error_of_loading(*target, given, {.ignored_endings = {".attn", ".attn.masked_bias"}}),
             ContainsSubstring("unexpected: h.0.attn.bias"));  // no ending: it goes on behind
}

TEST_CASE("dtypes are converted only when asked, and only where numbers survive", "[state_dict]") {
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

TEST_CASE("a tied weight is loaded from either name and stays tied", "[state_dict]") {
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

TEST_CASE("a tied weight under both names must have one value", "[state_dict]") {
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

  given["second.weight"] = given["first.weight"].view(at::kInt);  // the same bits, other numbers
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

TEST_CASE("an alias that cannot be one is an error", "[state_dict]") {
  Net net;
  const auto error = [&](const std::string& alias, const std::string& name) {
    try {
      state_dict(*net, {{alias, name}});
    } catch (const c10::Error& caught) {
      return std::string(caught.what_without_backtrace());
    }
    return std::string();
  };
  CHECK_THAT(error("head.weight", "none"),
             ContainsSubstring("'head.weight' names 'none', which the module does not have"));
  CHECK_THAT(error("fc.weight", "scale"), ContainsSubstring("'fc.weight' is already a name"));
  CHECK_THAT(error_of_loading(*net, state_dict(*net), {.aliases = {{"head.weight", "none"}}}),
             ContainsSubstring("load_state_dict: alias 'head.weight' names 'none'"));
  CHECK_THAT(error_of_loading(*net, state_dict(*net), {.aliases = {{"fc.weight", "scale"}}}),
             ContainsSubstring("load_state_dict: alias 'fc.weight' is already a name"));
}
