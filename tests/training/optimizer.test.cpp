// SPDX-License-Identifier: MIT
#include "mini/optimizer.h"

#include <string>
#include <utility>
#include <vector>

#include "support/error_of.h"
#include "support/support.h"

using mini::decay_groups;
using mini::load_optimizer_state_dict;
using mini::optimizer_state_dict;
using mini::test::AllClose;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using torch::optim::AdamWOptions;

namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;

/// Matrices, vectors, and a number; the same for the same seed.
torch::nn::Sequential model(uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(7, 33),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({33})),
                               torch::nn::GELU(), torch::nn::Linear(33, 1));
}

at::Tensor loss_of(torch::nn::Sequential& net, int step) {
  torch::manual_seed(1000 + step);
  const at::Tensor x = torch::randn({16, 7});
  return torch::mse_loss(net->forward(x), x.sum(1, true).sin());
}

template <typename Optimizer>
double train(torch::nn::Sequential& net, Optimizer& optimizer, int from, int to) {
  double last = 0.0;
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(net, step);
    loss.backward();
    optimizer.step();
    last = loss.template item<double>();
  }
  return last;
}

void check_same(const torch::nn::Module& actual, const torch::nn::Module& expected, double rtol,
                double atol) {
  const auto parameters = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    INFO(item.key());
    CHECK_THAT(parameters[item.key()], AllClose(item.value(), rtol, atol));
  }
}

AdamWOptions& options_of(torch::optim::OptimizerParamGroup& group) {
  return static_cast<AdamWOptions&>(group.options());
}

Tensors copy_of(const Tensors& tensors) {
  Tensors copy;
  for (const auto& item : tensors) copy.insert(item.key(), item.value().clone());
  return copy;
}

/// One weight registered under two names, and one that is not trained.
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

TEST_CASE("matrices decay, vectors and scalars do not", "[optimizer]") {
  const auto net = model(1);
  auto groups = decay_groups(*net, AdamWOptions(0.5).betas({0.8, 0.9}).weight_decay(0.25));
  REQUIRE(groups.size() == 2);
  for (const at::Tensor& parameter : groups[0].params()) CHECK(parameter.dim() == 2);
  for (const at::Tensor& parameter : groups[1].params()) CHECK(parameter.dim() == 1);
  CHECK(groups[0].params().size() == 2);
  CHECK(groups[1].params().size() == 4);

  // What the optimizer makes of them, whatever its defaults.
  mini::AdamW optimizer(groups);
  CHECK(options_of(optimizer.param_groups()[0]).weight_decay() == 0.25);
  CHECK(options_of(optimizer.param_groups()[1]).weight_decay() == 0.0);
  for (auto& group : optimizer.param_groups()) {
    CHECK(options_of(group).lr() == 0.5);
    CHECK(options_of(group).betas() == std::tuple(0.8, 0.9));
  }
}

TEST_CASE("a decay that is LibTorch's default is kept all the same", "[optimizer]") {
  const auto net = model(1);
  const auto options = AdamWOptions().weight_decay(0.01);
  mini::AdamW optimizer(decay_groups(*net, options), options);
  CHECK(options_of(optimizer.param_groups()[0]).weight_decay() == 0.01);
  CHECK(options_of(optimizer.param_groups()[1]).weight_decay() == 0.0);
}

TEST_CASE("a tied weight is taken once, a frozen one not at all", "[optimizer]") {
  const Tied module;
  const auto groups = decay_groups(*module, AdamWOptions());
  REQUIRE(groups[0].params().size() == 1);
  CHECK(groups[0].params()[0].is_same(module->weight));
  REQUIRE(groups[1].params().size() == 1);
  CHECK(groups[1].params()[0].is_same(module->scale));
}

TEST_CASE("the fused step is LibTorch's AdamW over many steps", "[optimizer]") {
  const std::vector<AdamWOptions> all = {
      AdamWOptions(0.01).weight_decay(0.1), AdamWOptions(0.01).weight_decay(0.0),
      AdamWOptions(0.02).betas({0.7, 0.95}).eps(1e-3).weight_decay(0.5),
      AdamWOptions(0.01).amsgrad(true)};
  for (const AdamWOptions& options : all) {
    auto ours = model(3), theirs = model(3);
    mini::AdamW our_optimizer(decay_groups(*ours, options), options);
    torch::optim::AdamW their_optimizer(decay_groups(*theirs, options), options);
    const double first = loss_of(ours, 0).item<double>();
    const double our_loss = train(ours, our_optimizer, 0, 200);
    const double their_loss = train(theirs, their_optimizer, 0, 200);
    CHECK(our_loss < 0.5 * first);
    CHECK(std::abs(our_loss - their_loss) < 1e-3);
    check_same(*ours, *theirs, 1e-3, 1e-4);
  }
}

TEST_CASE("one step is LibTorch's to rounding, in other types too", "[optimizer]") {
  const auto options = AdamWOptions(0.1).weight_decay(0.3);
  // Not in half precision, where the squares in LibTorch's own run out of exponent.
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    INFO(type);
    auto ours = model(4), theirs = model(4);
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
    check_same(*ours, *theirs, eps, eps);
  }
}

TEST_CASE("a parameter without a gradient is passed over", "[optimizer]") {
  auto net = model(1);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.1)));
  loss_of(net, 0).backward();
  at::Tensor still = net->named_parameters()["0.weight"];
  const at::Tensor before = still.detach().clone();
  still.mutable_grad() = at::Tensor();
  optimizer.step();
  CHECK_THAT(still, Equals(before));
  CHECK(optimizer_state_dict(optimizer, *net)["0.weight.step"].item<int64_t>() == 0);
  CHECK(optimizer_state_dict(optimizer, *net)["0.bias.step"].item<int64_t>() == 1);
  loss_of(net, 1).backward();  // its own count of steps, for the bias correction
  optimizer.step();
  CHECK(optimizer_state_dict(optimizer, *net)["0.weight.step"].item<int64_t>() == 1);
  CHECK_FALSE(at::equal(still, before));
}

TEST_CASE("a group may be empty, and so may all gradients", "[optimizer]") {
  torch::nn::Linear net(torch::nn::LinearOptions(2, 2).bias(false));
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.1)));
  const at::Tensor before = net->weight.detach().clone();
  optimizer.step();
  CHECK_THAT(net->weight, Equals(before));
  net->weight.sum().backward();
  optimizer.step();
  CHECK_FALSE(at::equal(net->weight, before));
}

TEST_CASE("a closure is called with gradients on, and its loss returned", "[optimizer]") {
  auto net = model(1);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.01)));
  const at::NoGradGuard no_grad;
  const at::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor value = loss_of(net, 0);
    value.backward();
    return value;
  });
  CHECK(loss.item<double>() > 0);
  CHECK(loss_of(net, 0).item<double>() < loss.item<double>());
}

TEST_CASE("parameters and gradients may be laid out in any order", "[optimizer]") {
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

TEST_CASE("what the fused step cannot walk over is refused", "[optimizer]") {
  const auto error = [](const at::Tensor& parameter, const at::Tensor& gradient) {
    const at::Tensor leaf = parameter.detach().requires_grad_();
    leaf.mutable_grad() = gradient;
    mini::AdamW optimizer(std::vector<at::Tensor>{leaf}, AdamWOptions(0.1));
    return error_of([&] { optimizer.step(); });
  };
  CHECK_THAT(error(at::ones({4, 4}).slice(1, 0, 2), at::ones({4, 2})),
             ContainsSubstring("AdamW: expected a parameter without gaps in its memory, got sizes "
                               "[4, 2] and strides [4, 1]"));
  CHECK_THAT(error(at::ones({4, 4}), at::ones({4, 4}).to_sparse()),
             ContainsSubstring("AdamW: expected dense gradients, got Sparse"));
}

TEST_CASE("LibTorch's own files hold the state too", "[optimizer]") {
  auto net = model(2);
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

TEST_CASE("the state goes by the names of the parameters", "[optimizer]") {
  auto net = model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  CHECK(optimizer_state_dict(optimizer, *net).size() == 6);  // the steps, all 0
  train(net, optimizer, 0, 3);
  const Tensors state = optimizer_state_dict(optimizer, *net);
  CHECK(state.size() == 18);
  CHECK(state["1.bias.step"].item<int64_t>() == 3);
  CHECK(state["0.weight.exp_avg"].sizes() == at::IntArrayRef({33, 7}));
  CHECK(state["3.bias.exp_avg_sq"].sizes() == at::IntArrayRef({1}));
}

TEST_CASE("with its state an optimizer goes on bit for bit, without it does not", "[optimizer]") {
  const bool amsgrad = GENERATE(false, true);
  const auto options = AdamWOptions(0.05).weight_decay(0.1).amsgrad(amsgrad);
  auto uninterrupted = model(2), resumed = model(2), control = model(2);
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
  train(resumed, *second, 99, 100);  // some other state before, and weights to restore
  {
    const at::NoGradGuard no_grad;
    for (auto& item : resumed->named_parameters()) item.value().copy_(weights[item.key()]);
  }
  for (int times = 0; times < 3; ++times) load_optimizer_state_dict(*second, *resumed, state);
  CHECK(optimizer_state_dict(*second, *resumed).size() == state.size());
  train(resumed, *second, 10, 20);
  check_same(*resumed, *uninterrupted, 0, 0);

  train(control, *third, 10, 20);
  CHECK_FALSE(at::equal(control->named_parameters()["0.weight"],
                        uninterrupted->named_parameters()["0.weight"]));
}

TEST_CASE("a state from before the first step makes the optimizer forget its own", "[optimizer]") {
  auto net = model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  const Tensors fresh = copy_of(optimizer_state_dict(optimizer, *net));
  train(net, optimizer, 0, 2);
  load_optimizer_state_dict(optimizer, *net, fresh);
  CHECK(optimizer.state().empty());
  CHECK(optimizer_state_dict(optimizer, *net)["0.weight.step"].item<int64_t>() == 0);
}

TEST_CASE("a loaded state is a copy", "[optimizer]") {
  auto net = model(2);
  mini::AdamW optimizer(decay_groups(*net, AdamWOptions(0.05)));
  train(net, optimizer, 0, 2);
  const Tensors state = copy_of(optimizer_state_dict(optimizer, *net));
  load_optimizer_state_dict(optimizer, *net, state);
  const at::Tensor before = state["0.weight.exp_avg"].clone();
  train(net, optimizer, 2, 3);
  CHECK_THAT(state["0.weight.exp_avg"], Equals(before));
}

TEST_CASE("a state that does not fit is refused, with all problems at once", "[optimizer]") {
  auto net = model(2);
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
  CHECK_THAT(error, ContainsSubstring("3.weight.step: below 0, -1"));
  CHECK_THAT(error, ContainsSubstring("\n  unexpected: 4.weight.step"));
  CHECK_THAT(error, ContainsSubstring("\n  unexpected: 3.weight.exp_avg"));
  const Tensors after = optimizer_state_dict(optimizer, *net);
  for (const auto& item : before) CHECK_THAT(after[item.key()], Equals(item.value()));

  // Nothing at all is no state either: dropping it must not pass unnoticed.
  CHECK_THAT(error_of([&] { load_optimizer_state_dict(optimizer, *net, Tensors()); }),
             ContainsSubstring("missing: 0.weight.step"));
  torch::nn::Linear other(7, 33);
  CHECK_THAT(error_of([&] { optimizer_state_dict(optimizer, *other); }),
             ContainsSubstring("optimizer_state_dict: expected an optimizer of the module's "
                               "parameters, got one more, of shape [33, 7]"));
}
