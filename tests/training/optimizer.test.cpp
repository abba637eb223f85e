// SPDX-License-Identifier: MIT
#include "mini/optimizer.h"

#include <tuple>
#include <vector>

#include "support/error_of.h"
#include "support/regression_problem.h"
#include "support/support.h"

using mini::decay_groups;
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

AdamWOptions& options_of(torch::optim::OptimizerParamGroup& group) {
  return static_cast<AdamWOptions&>(group.options());
}

/// A weight registered under two names, and one without requires_grad.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", torch::ones({2, 2}));
    head = register_parameter("head", weight);
    scale = register_parameter("scale", torch::ones({}));
    frozen = register_parameter("frozen", torch::ones({2, 2}), /*requires_grad=*/false);
  }
  at::Tensor weight, head, scale, frozen;
};
TORCH_MODULE(Tied);

}  // namespace

TEST_CASE("decay_groups decays matrices but not vectors and scalars", "[optimizer]") {
  const auto net = regression_model(1);
  auto groups = decay_groups(*net, AdamWOptions(0.5).betas({0.8, 0.9}).weight_decay(0.25));
  REQUIRE(groups.size() == 2);
  for (const at::Tensor& parameter : groups[0].params()) CHECK(parameter.dim() == 2);
  for (const at::Tensor& parameter : groups[1].params()) CHECK(parameter.dim() == 1);
  CHECK(groups[0].params().size() == 2);
  CHECK(groups[1].params().size() == 4);

  // The groups keep their options, whatever the optimizer's defaults.
  mini::AdamW optimizer(groups);
  CHECK(options_of(optimizer.param_groups()[0]).weight_decay() == 0.25);
  CHECK(options_of(optimizer.param_groups()[1]).weight_decay() == 0.0);
  for (auto& group : optimizer.param_groups()) {
    CHECK(options_of(group).lr() == 0.5);
    CHECK(options_of(group).betas() == std::tuple(0.8, 0.9));
  }
}

TEST_CASE("decay_groups keeps a weight decay that equals LibTorch's default", "[optimizer]") {
  const auto net = regression_model(1);
  const auto options = AdamWOptions().weight_decay(0.01);
  mini::AdamW optimizer(decay_groups(*net, options), options);
  CHECK(options_of(optimizer.param_groups()[0]).weight_decay() == 0.01);
  CHECK(options_of(optimizer.param_groups()[1]).weight_decay() == 0.0);
}

TEST_CASE("decay_groups lists a tied weight once and omits a frozen one", "[optimizer]") {
  const Tied module;
  const auto groups = decay_groups(*module, AdamWOptions());
  REQUIRE(groups[0].params().size() == 1);
  CHECK(groups[0].params()[0].is_same(module->weight));
  REQUIRE(groups[1].params().size() == 1);
  CHECK(groups[1].params()[0].is_same(module->scale));
}

TEST_CASE("AdamW follows LibTorch's AdamW over 200 steps", "[optimizer]") {
  const std::vector<AdamWOptions> all = {
      AdamWOptions(0.01).weight_decay(0.1), AdamWOptions(0.01).weight_decay(0.0),
      AdamWOptions(0.02).betas({0.7, 0.95}).eps(1e-3).weight_decay(0.5),
      AdamWOptions(0.01).amsgrad(true)};
  for (const AdamWOptions& options : all) {
    auto ours = regression_model(3), theirs = regression_model(3);
    mini::AdamW our_optimizer(decay_groups(*ours, options), options);
    torch::optim::AdamW their_optimizer(decay_groups(*theirs, options), options);
    const double first = regression_loss(ours, 0).item<double>();
    const double our_loss = train(ours, our_optimizer, 0, 200);
    const double their_loss = train(theirs, their_optimizer, 0, 200);
    CHECK(our_loss < 0.5 * first);
    CHECK(std::abs(our_loss - their_loss) < 1e-3);
    check_parameters(*ours, *theirs, 1e-3, 1e-4);
  }
}

TEST_CASE("one step of AdamW equals LibTorch's up to rounding in float64, float32 and bfloat16",
          "[optimizer]") {
  const auto options = AdamWOptions(0.1).weight_decay(0.3);
  // Not float16: LibTorch's own step squares the gradients, and the squares leave the range.
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    INFO(type);
    auto ours = regression_model(4), theirs = regression_model(4);
    ours->to(type);
    theirs->to(type);
    for (auto* net : {&ours, &theirs}) {
      torch::manual_seed(5);
      for (at::Tensor& parameter : (*net)->parameters()) {
        parameter.mutable_grad() = torch::randn(parameter.sizes()).to(type);
      }
    }
    mini::AdamW(decay_groups(*ours, options), options).step();
    torch::optim::AdamW(decay_groups(*theirs, options), options).step();
    const double eps = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 2e-2;
    check_parameters(*ours, *theirs, eps, eps);
  }
}

TEST_CASE("AdamW skips a parameter without a gradient", "[optimizer]") {
  auto net = regression_model(1);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.1)));
  regression_loss(net, 0).backward();
  at::Tensor skipped = net->named_parameters()["0.weight"];
  const at::Tensor before = skipped.detach().clone();
  skipped.mutable_grad() = at::Tensor();
  optimizer.step();
  CHECK_THAT(skipped, Equals(before));
  CHECK(optimizer_state_dict(optimizer, *net)["0.weight.step"].item<int64_t>() == 0);
  CHECK(optimizer_state_dict(optimizer, *net)["0.bias.step"].item<int64_t>() == 1);
  regression_loss(net, 1).backward();
  optimizer.step();
  // The parameter has its own step count, for the bias correction.
  CHECK(optimizer_state_dict(optimizer, *net)["0.weight.step"].item<int64_t>() == 1);
  CHECK_FALSE(at::equal(skipped, before));
}

TEST_CASE("AdamW accepts an empty group and a step without gradients", "[optimizer]") {
  torch::nn::Linear net(torch::nn::LinearOptions(2, 2).bias(false));
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.1)));
  const at::Tensor before = net->weight.detach().clone();
  optimizer.step();
  CHECK_THAT(net->weight, Equals(before));
  net->weight.sum().backward();
  optimizer.step();
  CHECK_FALSE(at::equal(net->weight, before));
}

TEST_CASE("AdamW calls a closure with gradients enabled and returns its loss", "[optimizer]") {
  auto net = regression_model(1);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.01)));
  const at::NoGradGuard no_grad;
  const at::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor value = regression_loss(net, 0);
    value.backward();
    return value;
  });
  CHECK(loss.item<double>() > 0);
  CHECK(regression_loss(net, 0).item<double>() < loss.item<double>());
}

TEST_CASE("AdamW computes the same result for any strides of parameters and gradients",
          "[optimizer]") {
  const at::Tensor values = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor slope = values.sin();
  const auto stepped = [](const at::Tensor& start, const at::Tensor& gradient) {
    const at::Tensor parameter = start.detach().requires_grad_();
    parameter.mutable_grad() = gradient;
    mini::AdamW optimizer(std::vector<at::Tensor>{parameter}, AdamWOptions(0.1));
    for (int i = 0; i < 3; ++i) optimizer.step();
    return parameter.detach();
  };
  const at::Tensor expected = stepped(values.clone(), slope.clone());
  const at::Tensor transposed = values.t().contiguous().t(), slope_t = slope.t().contiguous().t();
  CHECK_THAT(stepped(transposed.clone(), slope_t), Equals(expected));
  CHECK_THAT(stepped(values.clone(), slope_t), Equals(expected));
  CHECK_THAT(stepped(transposed.clone(), slope), Equals(expected));
  CHECK_THAT(stepped(values.clone(), at::ones({1}).expand({3, 4})),
             Equals(stepped(values.clone(), at::ones({3, 4}))));
}

TEST_CASE("AdamW refuses parameters with gaps and sparse gradients", "[optimizer]") {
  const auto error = [](const at::Tensor& parameter, const at::Tensor& gradient) {
    const at::Tensor leaf = parameter.detach().requires_grad_();
    leaf.mutable_grad() = gradient;
    mini::AdamW optimizer(std::vector<at::Tensor>{leaf}, AdamWOptions(0.1));
    return error_of([&] { optimizer.step(); });
  };
  CHECK_THAT(error(at::ones({4, 4}).slice(1, 0, 2), at::ones({4, 2})),
             ContainsSubstring("AdamW: expected a non-overlapping and dense parameter, got sizes "
                               "[4, 2] and strides [4, 1]"));
  CHECK_THAT(error(at::ones({4, 4}), at::ones({4, 4}).to_sparse()),
             ContainsSubstring("AdamW: expected dense gradients, got Sparse"));
}
