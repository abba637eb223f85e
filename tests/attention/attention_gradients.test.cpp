// SPDX-License-Identifier: MIT
// Gradients of attention on every path: first and second order against finite differences in
// float64, and for any subset of inputs.
#include <cmath>
#include <limits>

#include "support/attention_support.h"

using namespace mini;
using namespace mini::test;

namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

// The gradient of sum(f * upstream) for each input, by central differences. float64 only.
Tensors numeric_gradients(const Function& f, const Tensors& inputs, const at::Tensor& upstream) {
  const double step = 1e-6;
  const at::NoGradGuard no_grad;
  Tensors result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor gradient = at::zeros_like(inputs[i]);
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const auto moved = [&](double by) {
        Tensors all = inputs;
        all[i] = inputs[i].detach().clone();
        all[i].view(-1)[j] += by;
        return (f(all) * upstream).sum();
      };
      gradient.view(-1)[j] = (moved(step) - moved(-step)) / (2 * step);
    }
    result.push_back(gradient);
  }
  return result;
}

void check_first_order(const Function& f, const Tensors& inputs) {
  const at::Tensor output = f(inputs);
  const at::Tensor upstream = at::randn_like(output);
  const Tensors expected = numeric_gradients(f, inputs, upstream);
  const Tensors actual = gradients(output, upstream, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("input " << i);
    CHECK_THAT(actual[i], AllClose(expected[i], 1e-6, 1e-7));
  }
}

// Checks the flattened first-order gradients as a function of the inputs and the upstream gradient.
void check_second_order(const Function& f, Tensors inputs) {
  const size_t n = inputs.size();
  inputs.push_back(at::randn_like(f(inputs)).requires_grad_());
  const Function gradient = [&](const Tensors& all) {
    // numeric_gradients() disables grad mode, but the inner gradients need a graph.
    const at::AutoGradMode enable(true);
    Tensors leaves;
    for (const at::Tensor& t : all) {
      leaves.push_back(t.requires_grad() ? t : t.detach().clone().requires_grad_());
    }
    Tensors flat;
    const at::Tensor output = f({leaves.begin(), leaves.begin() + static_cast<int64_t>(n)});
    for (const at::Tensor& t :
         gradients(output, leaves[n], {leaves.begin(), leaves.begin() + static_cast<int64_t>(n)},
                   /*create_graph=*/true)) {
      flat.push_back(t.flatten());
    }
    return at::cat(flat);
  };
  check_first_order(gradient, inputs);
}

at::Tensor leaf(const at::Tensor& t) { return t.detach().clone().requires_grad_(); }

struct Case {
  std::string name;
  AttentionOptions options;
};

}  // namespace

TEST_CASE("first- and second-order gradients agree with finite differences", "[attention]") {
  const Inputs in = random_inputs({2}, 3, 4, 3, 2, at::kDouble).requires_grad();
  at::Tensor keep = bools({3, 4}, {1, 0, 1, 1,  //
                                   0, 0, 0, 0,  //
                                   1, 1, 1, 0});
  const std::vector<Case> cases = {
      {"plain", {}},
      {"scale", {.scale = -0.7}},
      {"causal", {.causal = Causal::kUpperLeft}},
      {"lower right", {.causal = Causal::kLowerRight}},
      {"bool mask with a row that sees no key", {.mask = keep}},
      {"mask and causal", {.mask = keep, .causal = Causal::kLowerRight}},
  };
  for (const auto& [name, options] : cases) {
    for (const Path& path : paths()) {
      INFO(path.name << ": " << name);
      const Function f = [&, &options = options](const Tensors& t) {
        return path.output({t[0], t[1], t[2]}, options);
      };
      check_first_order(f, {in.q, in.k, in.v});
      check_second_order(f, {in.q, in.k, in.v});
    }
  }
}

TEST_CASE("gradients of a float mask agree with finite differences", "[attention]") {
  const Inputs in = random_inputs({2}, 3, 4, 3, 2, at::kDouble).requires_grad();
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 3, 4}, {3, 4}, {1, 4}, {3, 1}, {4}, {}}) {
    const at::Tensor bias = at::randn(shape, at::kDouble).requires_grad_();
    for (const Path& path : paths()) {
      INFO(path.name << ", mask " << c10::str(bias.sizes()));
      const Function f = [&](const Tensors& t) {
        return path.output({t[0], t[1], t[2]}, {.mask = t[3], .causal = Causal::kLowerRight});
      };
      check_first_order(f, {in.q, in.k, in.v, bias});
      check_second_order(f, {in.q, in.k, in.v, bias});
    }
  }
}

TEST_CASE("a mask may be the only input that requires a gradient", "[attention]") {
  const Inputs in{at::zeros({2, 1}), at::zeros({2, 1}), torch::tensor({{1.f}, {3.f}})};
  for (const Path& path : paths()) {
    INFO(path.name);
    const auto gradient_of = [&](const at::Tensor& bias) {
      const at::Tensor output = path.output(in, {.mask = bias, .scale = 1.0});
      return gradients(output, at::ones_like(output), {bias})[0];
    };
    const at::Tensor bias = at::zeros({2, 2}).requires_grad_();
    CHECK_THAT(path.output(in, {.mask = bias, .scale = 1.0}),
               Equals(torch::tensor({{2.f}, {2.f}})));
    CHECK_THAT(gradient_of(bias), AllClose(torch::tensor({{-0.5, 0.5}, {-0.5, 0.5}}), 0, 1e-6));
    CHECK_THAT(gradient_of(at::zeros({1, 2}).requires_grad_()),
               AllClose(torch::tensor({{-1.0, 1.0}}), 0, 1e-6));
    CHECK_THAT(gradient_of(at::zeros({1, 1}).requires_grad_()),
               AllClose(at::zeros({1, 1}), 0, 1e-6));

    const at::Tensor hiding = torch::tensor({{0.0, -kInf}, {-kInf, -kInf}}).to(at::kFloat);
    const at::Tensor gradient = gradient_of(hiding.requires_grad_());
    CHECK_THAT(gradient, Equals(at::zeros({2, 2})));
  }
}

TEST_CASE("any subset of inputs may require a gradient", "[attention]") {
  const Inputs values = random_inputs({2, 2}, 5, 6, 8, 7);
  const Inputs all = values.requires_grad();
  for (const Path& path : paths()) {
    const at::Tensor full = path.output(all, {.causal = Causal::kLowerRight});
    const at::Tensor upstream = at::randn_like(full);
    const Tensors expected = gradients(full, upstream, {all.q, all.k, all.v});
    for (int subset = 1; subset < 8; ++subset) {
      INFO(path.name << ", subset " << subset);
      const Inputs in{(subset & 1) ? leaf(values.q) : values.q,
                      (subset & 2) ? leaf(values.k) : values.k,
                      (subset & 4) ? leaf(values.v) : values.v};
      const at::Tensor output = path.output(in, {.causal = Causal::kLowerRight});
      const Tensors each = {in.q, in.k, in.v};
      for (size_t i = 0; i < 3; ++i) {
        if (each[i].requires_grad()) {
          CHECK_THAT(gradients(output, upstream, {each[i]})[0], AllClose(expected[i], 1e-5, 1e-6));
        }
      }
    }
  }
}

TEST_CASE("rows that see no key have zero gradients and do not affect other rows", "[attention]") {
  // Anomaly detection turns a NaN in any intermediate gradient into an error.
  const torch::autograd::DetectAnomalyGuard no_nan_on_the_way;
  at::Tensor keep = at::ones({2, 3, 5, 6}, at::kBool);
  keep[0][1].fill_(false);     // a whole head
  keep[1][2][3].fill_(false);  // a row
  for (const Path& path : paths()) {
    INFO(path.name);
    const Inputs in = random_inputs({2, 3}, 5, 6, 8, 7).requires_grad();
    const at::Tensor output = path.output(in, {.mask = keep});
    const Tensors grads = gradients(output, at::randn_like(output), {in.q, in.k, in.v});
    for (const at::Tensor& gradient : grads) {
      CHECK(gradient.isfinite().all().item<bool>());
    }
    CHECK_THAT(grads[0][0][1], Equals(at::zeros({5, 8})));
    CHECK_THAT(grads[1][0][1], Equals(at::zeros({6, 8})));
    CHECK_THAT(grads[2][0][1], Equals(at::zeros({6, 7})));
    CHECK_THAT(grads[0][1][2][3], Equals(at::zeros({8})));
    CHECK(grads[0][1][2][2].abs().sum().item<double>() > 0);
  }
}

TEST_CASE("an upstream gradient may be expanded or strided", "[attention]") {
  for (const Path& path : paths()) {
    INFO(path.name);
    const Inputs in = random_inputs({2, 2}, 5, 5, 8, 8).requires_grad();
    const at::Tensor output = path.output(in, {});
    const at::Tensor expanded = at::full({1, 1, 1, 1}, 0.5f).expand_as(output);
    const Tensors actual = gradients(output, expanded, {in.q, in.k, in.v});
    const Tensors expected = gradients(output, expanded.contiguous(), {in.q, in.k, in.v});
    const at::Tensor strided = at::randn({2, 2, 8, 5}).transpose(-2, -1);
    const Tensors actual_strided = gradients(output, strided, {in.q, in.k, in.v});
    const Tensors expected_strided = gradients(output, strided.contiguous(), {in.q, in.k, in.v});
    for (size_t i = 0; i < 3; ++i) {
      CHECK_THAT(actual[i], AllClose(expected[i], 1e-5, 1e-6));
      CHECK_THAT(actual_strided[i], AllClose(expected_strided[i], 1e-5, 1e-6));
    }
  }
}

TEST_CASE("the same tensor may be query, key and value", "[attention]") {
  for (const Path& path : paths()) {
    INFO(path.name);
    const at::Tensor x = at::randn({2, 4, 3}, at::kDouble).requires_grad_();
    const Function f = [&](const Tensors& t) { return path.output({t[0], t[0], t[0]}, {}); };
    check_first_order(f, {x});
    check_second_order(f, {x});
  }
}
