// SPDX-License-Identifier: MIT
// The state of an optimizer as named tensors.
#include <memory>
#include <sstream>
#include <string>

#include "mini/optimizer.h"
#include "support/error_of.h"
#include "support/regression_problem.h"
#include "support/support.h"

using mini::decay_groups;
using mini::load_optimizer_state_dict;
using mini::optimizer_state_dict;
using mini::test::check_parameters;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::regression_loss;
using mini::test::regression_model;
using mini::test::train;
using torch::optim::AdamWOptions;

namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;

Tensors copy_of(const Tensors& tensors) {
  Tensors copy;
  for (const auto& item : tensors) copy.insert(item.key(), item.value().clone());
  return copy;
}

}  // namespace

TEST_CASE("torch::save and torch::load preserve the state of AdamW", "[optimizer]") {
  auto net = regression_model(2);
  const auto options = AdamWOptions(0.05);
  mini::AdamW optimizer(decay_groups(*net, options), options);
  train(net, optimizer, 0, 5);
  std::stringstream stream;
  torch::save(optimizer, stream);
  mini::AdamW other(decay_groups(*net, options), options);
  torch::load(other, stream);
  const Tensors expected = optimizer_state_dict(optimizer, *net);
  const Tensors loaded = optimizer_state_dict(other, *net);
  REQUIRE(loaded.keys() == expected.keys());
  for (const auto& item : expected) CHECK_THAT(loaded[item.key()], Equals(item.value()));
}

TEST_CASE("AdamW continues after the model is moved to another dtype", "[optimizer]") {
  const bool amsgrad = GENERATE(false, true);
  const auto options = AdamWOptions(0.01).amsgrad(amsgrad);
  const auto run = [&](auto optimizer, bool pending_gradient) {
    auto net = regression_model(2);
    optimizer = std::make_unique<typename decltype(optimizer)::element_type>(
        decay_groups(*net, options), options);
    train(net, *optimizer, 0, 5);
    if (pending_gradient) regression_loss(net, 5).backward();
    net->to(at::kDouble);
    if (pending_gradient) optimizer->step();
    for (int step = 6; step < 9; ++step) {
      optimizer->zero_grad();
      torch::manual_seed(static_cast<uint64_t>(step));
      const at::Tensor x = torch::randn({16, 7}, at::kDouble);
      torch::mse_loss(net->forward(x), x.sum(1, true).sin()).backward();
      optimizer->step();
    }
    const Tensors state = optimizer_state_dict(*optimizer, *net);
    load_optimizer_state_dict(*optimizer, *net, copy_of(state));
    return net;
  };
  for (const bool pending_gradient : {false, true}) {
    const auto ours = run(std::unique_ptr<mini::AdamW>(), pending_gradient);
    const auto theirs = run(std::unique_ptr<torch::optim::AdamW>(), pending_gradient);
    CHECK(ours->parameters()[0].scalar_type() == at::kDouble);
    check_parameters(*ours, *theirs, 1e-6, 1e-7);
  }
}

TEST_CASE("AdamW follows a parameter whose strides change", "[optimizer]") {
  auto straight = regression_model(2), turned = regression_model(2);
  mini::AdamW first(decay_groups(*straight, AdamWOptions(0.01))),
      second(decay_groups(*turned, AdamWOptions(0.01)));
  train(straight, first, 0, 3);
  train(turned, second, 0, 3);
  for (at::Tensor& weight : turned->parameters()) {
    if (weight.dim() == 2) weight.set_data(weight.detach().t().contiguous().t());
  }
  train(straight, first, 3, 6);
  train(turned, second, 3, 6);
  check_parameters(*turned, *straight, 1e-4, 1e-6);
}

TEST_CASE("a state saved after a change of dtype loads", "[optimizer]") {
  auto net = regression_model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  train(net, optimizer, 0, 3);
  net->to(at::kDouble);
  const Tensors state = optimizer_state_dict(optimizer, *net);
  CHECK(state["0.weight.exp_avg"].scalar_type() == at::kDouble);
  load_optimizer_state_dict(optimizer, *net, state);
  CHECK_THAT(optimizer_state_dict(optimizer, *net)["0.weight.exp_avg"],
             Equals(state["0.weight.exp_avg"]));
}

TEST_CASE("optimizer_state_dict names the state after the parameters", "[optimizer]") {
  auto net = regression_model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  CHECK(optimizer_state_dict(optimizer, *net).size() == 6);  // the steps, all 0
  train(net, optimizer, 0, 3);
  const Tensors state = optimizer_state_dict(optimizer, *net);
  CHECK(state.size() == 18);
  CHECK(state["1.bias.step"].item<int64_t>() == 3);
  CHECK(state["0.weight.exp_avg"].sizes() == at::IntArrayRef({33, 7}));
  CHECK(state["3.bias.exp_avg_sq"].sizes() == at::IntArrayRef({1}));
}

TEST_CASE("an optimizer resumes bit for bit with its saved state and not without it",
          "[optimizer]") {
  const bool amsgrad = GENERATE(false, true);
  const auto options = AdamWOptions(0.05).weight_decay(0.1).amsgrad(amsgrad);
  auto uninterrupted = regression_model(2), resumed = regression_model(2),
       control = regression_model(2);
  const auto optimizer_of = [&](torch::nn::Sequential& net) {
    return std::make_unique<mini::AdamW>(decay_groups(*net, options), options);
  };
  const auto first = optimizer_of(uninterrupted);
  train(uninterrupted, *first, 0, 10);
  const Tensors weights = copy_of(uninterrupted->named_parameters());
  const Tensors state = copy_of(optimizer_state_dict(*first, *uninterrupted));
  train(uninterrupted, *first, 10, 20);

  for (auto* net : {&resumed, &control}) {
    const at::NoGradGuard no_grad;
    for (auto& item : (*net)->named_parameters()) item.value().copy_(weights[item.key()]);
  }
  const auto second = optimizer_of(resumed), third = optimizer_of(control);
  train(resumed, *second, 99, 100);  // gives it another state, and weights to restore
  {
    const at::NoGradGuard no_grad;
    for (auto& item : resumed->named_parameters()) item.value().copy_(weights[item.key()]);
  }
  for (int times = 0; times < 3; ++times) load_optimizer_state_dict(*second, *resumed, state);
  CHECK(optimizer_state_dict(*second, *resumed).size() == state.size());
  train(resumed, *second, 10, 20);
  check_parameters(*resumed, *uninterrupted, 0, 0);

  train(control, *third, 10, 20);
  CHECK_FALSE(at::equal(control->named_parameters()["0.weight"],
                        uninterrupted->named_parameters()["0.weight"]));
}

TEST_CASE("loading a state from before the first step clears the optimizer's state",
          "[optimizer]") {
  auto net = regression_model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  const Tensors fresh = copy_of(optimizer_state_dict(optimizer, *net));
  train(net, optimizer, 0, 2);
  load_optimizer_state_dict(optimizer, *net, fresh);
  CHECK(optimizer.state().empty());
  CHECK(optimizer_state_dict(optimizer, *net)["0.weight.step"].item<int64_t>() == 0);
}

TEST_CASE("load_optimizer_state_dict copies the tensors", "[optimizer]") {
  auto net = regression_model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  train(net, optimizer, 0, 2);
  const Tensors state = copy_of(optimizer_state_dict(optimizer, *net));
  load_optimizer_state_dict(optimizer, *net, state);
  const at::Tensor before = state["0.weight.exp_avg"].clone();
  train(net, optimizer, 2, 3);
  CHECK_THAT(state["0.weight.exp_avg"], Equals(before));
}

TEST_CASE("load_optimizer_state_dict lists every tensor that does not fit", "[optimizer]") {
  auto net = regression_model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  train(net, optimizer, 0, 2);
  const Tensors before = copy_of(optimizer_state_dict(optimizer, *net));
  Tensors bad;
  for (const auto& item : before) {
    const std::string& name = item.key();
    if (name == "0.weight.step" || name == "0.bias.exp_avg") continue;
    bad.insert(name, name == "1.weight.exp_avg"    ? at::zeros({32})
                     : name == "1.bias.exp_avg_sq" ? at::zeros({33}, at::kDouble)
                     : name == "3.weight.step"     ? at::scalar_tensor(-1, at::kLong)
                                                   : item.value());
  }
  bad.insert("4.weight.step", at::scalar_tensor(1, at::kLong));
  const std::string error = error_of([&] { load_optimizer_state_dict(optimizer, *net, bad); });
  CHECK_THAT(error, ContainsSubstring("the tensors do not fit the optimizer:"));
  CHECK_THAT(error, ContainsSubstring("\n  missing: 0.weight.step"));
  CHECK_THAT(error, ContainsSubstring("\n  missing: 0.bias.exp_avg"));
  CHECK_THAT(error, ContainsSubstring("1.weight.exp_avg: wrong shape, expected [33], got [32]"));
  CHECK_THAT(error,
             ContainsSubstring("1.bias.exp_avg_sq: wrong dtype, expected Float, got Double"));
  CHECK_THAT(error, ContainsSubstring("3.weight.step: expected at least 0, got -1"));
  CHECK_THAT(error, ContainsSubstring("\n  unexpected: 4.weight.step"));
  CHECK_THAT(error, ContainsSubstring("\n  unexpected: 3.weight.exp_avg"));
  const Tensors after = optimizer_state_dict(optimizer, *net);
  for (const auto& item : before) CHECK_THAT(after[item.key()], Equals(item.value()));

  // An empty dictionary is an error too, so a lost state does not go unnoticed.
  CHECK_THAT(error_of([&] { load_optimizer_state_dict(optimizer, *net, Tensors()); }),
             ContainsSubstring("missing: 0.weight.step"));
}

TEST_CASE("optimizer_state_dict refuses a parameter that is not in the module", "[optimizer]") {
  auto net = regression_model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  torch::nn::Linear other(7, 33);
  CHECK_THAT(error_of([&] { optimizer_state_dict(optimizer, *other); }),
             ContainsSubstring("optimizer_state_dict: expected an optimizer of the module's "
                               "parameters, got a parameter of shape [33, 7] that is not in the "
                               "module"));
}
