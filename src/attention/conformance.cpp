// SPDX-License-Identifier: MIT
#include "mini/conformance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "attention/conformance_subject.h"

namespace mini {
namespace {

using at::Tensor;
using detail::Arguments;
using detail::is_half;
using detail::kInfinite;
using detail::kNotANumber;
using detail::roundoff;
using detail::Sizes;
using detail::Subject;

// ---- Values and shapes.

void check_known_values(Subject& s) {
  // The last row of weights is e^0, e^0, e^sqrt(1/2), normalised.
  const Tensor x = s.rows({1, 0, 0, 1, 1, 1}, 2);
  const Tensor v = s.rows({1, 2, 3, 4, 5, 6}, 2);
  s.follows_formula({x, x, v});
  const Tensor expected = at::tensor({3.51046953, 4.51046953}, at::kDouble);
  const double unit = std::max(roundoff(s.dtype), 1e-9);
  s.equal_values(s.call({x, x, v}).select(1, 2), expected.unsqueeze(0), 4 * unit, 4 * unit);
}

template <int dimensions>
void check_dimensions(Subject& s) {
  s.follows_formula(s.inputs(Sizes(static_cast<size_t>(dimensions - 2), 2), 5, 5, 8, 8));
}

void check_sizes(Subject& s) {
  for (const int64_t T : {1, 2, 7, 17, 65}) {
    for (const int64_t d : {1, 3, 8, 33}) s.follows_formula(s.inputs({2}, T, T, d, d));
  }
}

void check_lengths(Subject& s) {
  for (const auto& [Tq, Tk] : {std::pair(1, 9), std::pair(3, 70), std::pair(66, 5)}) {
    s.follows_formula(s.inputs({2}, Tq, Tk, 8, 8));
  }
}

void check_widths(Subject& s) {
  s.follows_formula(s.inputs({2}, 5, 5, 8, 3));
  s.follows_formula(s.inputs({2}, 5, 5, 3, 20));
}

void check_empty(Subject& s) {
  for (const auto& [B, T] : {std::pair(0, 4), std::pair(2, 0)}) {
    s.same(s.call(s.inputs({B}, T, T, 8, 8)), at::zeros({B, T, 8}));
  }
}

void check_no_keys(Subject& s) {
  s.same(s.call(s.inputs({2}, 3, 0, 8, 8)), at::zeros({2, 3, 8}));
  s.same(s.call(s.inputs({2}, 0, 3, 8, 8)), at::zeros({2, 0, 8}));
}

void check_strides(Subject& s) {
  Arguments in = s.inputs({2}, 6, 6, 6, 6);
  in.q = in.q.transpose(1, 2);
  in.k = in.k.select(0, 0).expand({2, 6, 6});
  in.v = s.draw({2, 6, 12}).slice(2, 0, 12, 2);
  s.follows_formula(in);
  in.q = s.draw({6, 2, 6}).transpose(0, 1);
  s.follows_formula(in);
  s.gradients_follow_formula(in, at::ones({1}, in.q.options()).expand({2, 6, 6}));
}

void check_inputs_unchanged(Subject& s) {
  const Arguments in = s.inputs({2}, 5, 5, 8, 8);
  const Arguments before = {in.q.clone(), in.k.clone(), in.v.clone()};
  const int threads = at::get_num_threads();
  Tensor output = s.call(in);
  if (at::get_num_threads() != threads) s.fail("another number of threads", "");
  if (s.call(in).equal(output)) {
    if (output.is_alias_of(in.q) || output.is_alias_of(in.k) || output.is_alias_of(in.v)) {
      s.fail("shared memory", "the output shares memory with an input");
    }
  } else {
    s.fail("other values", "a second call returns other bits");
  }
  s.same(in.q, before.q);
  s.same(in.k, before.k);
  s.same(in.v, before.v);
}

// ---- Scale.

void check_scale_values(Subject& s) {
  for (const double scale : {1.0, 0.0, 0.5, -0.3}) {
    Arguments in = s.inputs({2}, 5, 5, 8, 8);
    in.options.scale = scale;
    s.follows_formula(in);
  }
}

void check_scale_refused(Subject& s) {
  for (const double scale : {kNotANumber, kInfinite, -kInfinite}) {
    Arguments in = s.inputs({2}, 5, 5, 8, 8);
    in.options.scale = scale;
    s.refuses(in, "a scale that is not finite");
  }
}

// ---- Masks.

void check_bool_mask(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.mask = s.keep({5, 5});
  s.follows_formula(in);
}

void check_float_mask(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.mask = s.draw({5, 5});
  s.follows_formula(in);
  in.options.mask = s.draw({5, 5}).masked_fill(s.keep({5, 5}).logical_not(), -kInfinite);
  s.follows_formula(in);
}

void check_mask_broadcast(Subject& s) {
  for (const Sizes& sizes :
       {Sizes{5}, Sizes{1, 5}, Sizes{5, 1}, Sizes{1, 1}, Sizes{2, 1, 5}, Sizes{1, 5, 5}}) {
    Arguments in = s.inputs({2}, 5, 5, 8, 8);
    in.options.mask = s.keep(sizes);
    s.follows_formula(in);
    in.options.mask = s.draw(sizes);
    s.follows_formula(in);
  }
}

void check_mask_dtypes(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  const Tensor mask = s.draw({5, 5}).to(at::kBFloat16);
  for (const auto mask_dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    in.options.mask = mask.to(mask_dtype);
    s.follows_formula(in);
  }
}

void check_lowest_mask(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.scale = std::nullopt;
  in.options.mask =
      at::full({5, 5}, std::numeric_limits<float>::lowest(),
               in.q.options().dtype(s.dtype == at::kDouble ? at::kDouble : at::kFloat));
  // The scores vanish beside the mask, so the weights are even. In float64 they do not.
  if (s.dtype == at::kDouble) {
    s.follows_formula(in);
  } else {
    s.close(s.call(in), in.v.to(at::kDouble).mean(1, /*keepdim=*/true).expand({2, 5, 8}));
  }
}

void check_mask_gradient(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  for (const Sizes& sizes : {Sizes{5, 5}, Sizes{1, 5}, Sizes{2, 1, 5}}) {
    const Tensor mask = s.draw(sizes).requires_grad_();
    in.options.mask = mask;
    const Tensor upstream = s.draw({2, 5, 8});
    const auto found = s.gradients(in, {mask}, upstream);
    s.close_gradient(found[0], s.formula(in, upstream).dscores.sum_to_size(sizes));
  }
}

void check_mask_refused(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.mask = at::ones({4, 5}, in.q.options().dtype(at::kBool));
  s.refuses(in, "a mask that does not broadcast to the scores");
  in.options.mask = at::ones({5, 5}, in.q.options().dtype(at::kLong));
  s.refuses(in, "a mask of integers");
}

void check_ambiguous_mask(Subject& s) {
  Arguments in = s.inputs({2, 2}, 5, 5, 8, 8);
  in.options.mask = at::ones({2, 5, 5}, in.q.options().dtype(at::kBool));
  s.refuses(in, "a mask of three dimensions for q of four");
}

// ---- Causality.

template <Causal causal, bool equal>
void check_causal(Subject& s) {
  const std::vector<std::pair<int, int>> unequal = {{2, 5}, {5, 2}, {3, 70}, {70, 33}};
  for (const auto& [Tq, Tk] :
       equal ? std::vector<std::pair<int, int>>{{5, 5}, {66, 66}} : unequal) {
    Arguments in = s.inputs({2}, Tq, Tk, 8, 8);
    in.options.causal = causal;
    s.follows_formula(in);
  }
}

template <Causal causal>
void check_causal_and_mask(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.causal = causal;
  in.options.mask = s.keep({5, 5});
  s.follows_formula(in);
  in.options.mask = s.draw({5, 5});
  s.follows_formula(in);
}

// ---- Hidden keys.

// Row 1 sees no key.
Arguments with_empty_row(Subject& s, bool as_bool) {
  Arguments in = s.inputs({2}, 3, 3, 8, 8);
  const Tensor keep = s.bools({1, 0, 1, 0, 0, 0, 1, 1, 1}, {3, 3});
  in.options.mask = as_bool ? keep : s.draw({3, 3}).masked_fill(keep.logical_not(), -kInfinite);
  return in;
}

template <bool as_bool>
void check_empty_row(Subject& s) {
  const Arguments in = with_empty_row(s, as_bool);
  s.same(s.call(in).select(1, 1), at::zeros({2, 8}));
  s.follows_formula(in);
}

void check_empty_row_gradient(Subject& s) {
  for (const bool as_bool : {true, false}) s.gradients_follow_formula(with_empty_row(s, as_bool));
}

void check_causal_empty_row(Subject& s) {
  Arguments in = s.inputs({2}, 5, 2, 8, 8);
  in.options.causal = Causal::kLowerRight;  // the first three queries see no key
  s.same(s.call(in).narrow(1, 0, 3), at::zeros({2, 3, 8}));
  s.gradients_follow_formula(in);
}

void check_hidden_weight(Subject& s) {
  // The hidden score exceeds the visible scores by far more than any finite fill would subtract.
  const double large = s.dtype == at::kHalf ? 200 : 1e5;
  const Tensor q = s.rows({large, large}, 1), k = s.rows({-large, large}, 1);
  Arguments in = {q, k, s.rows({1, 2}, 1)};
  in.options.mask = s.bools({1, 0, 1, 0}, {2, 2});
  s.same(s.call(in), at::ones({1, 2, 1}));
  in.options.mask =
      at::zeros({2, 2}, q.options()).masked_fill(in.options.mask->logical_not(), -kInfinite);
  s.same(s.call(in), at::ones({1, 2, 1}));
}

void check_hidden_nan(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.mask = at::ones({5, 5}, in.q.options().dtype(at::kBool));
  in.options.mask->select(1, 2).fill_(false);
  const Tensor expected = s.formula(in).output;
  for (const double value : {kNotANumber, kInfinite}) {
    in.k.select(1, 2).fill_(value);
    s.close(s.call(in), expected);
  }
}

void check_visible_nan(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  in.options.mask = at::ones({5, 5}, in.q.options().dtype(at::kBool));
  in.options.mask->narrow(0, 0, 2).select(1, 2).fill_(false);  // rows 0 and 1 do not see key 2
  Tensor expected = s.formula(in).output;
  expected.narrow(1, 2, 3).fill_(kNotANumber);
  in.k.select(1, 2).fill_(kNotANumber);
  s.close(s.call(in), expected);
}

// ---- Large scores.

void check_infinite_scores(Subject& s) {
  const Tensor nan = at::full({1, 1, 1}, kNotANumber);
  Arguments in = {s.rows({-kInfinite}, 1), s.rows({1, 2}, 1), s.rows({1, 3}, 1)};
  s.same(s.call(in), nan);
}

void check_infinite_mask(Subject& s) {
  Arguments in = s.inputs({1}, 2, 2, 4, 4);
  in.options.mask = s.tensor(at::tensor({0.0, kInfinite, 0.0, 0.0}, at::kDouble).view({2, 2}));
  s.same(s.call(in).select(1, 0), at::full({1, 4}, kNotANumber));
}

void check_large_scores(Subject& s) {
  const auto column = [&](std::vector<double> values) { return s.rows(std::move(values), 1); };
  for (const double factor : {100.0, 250.0}) {
    Arguments in = {column({factor, factor}), column({-200, -201}), column({1, 2})};
    s.follows_formula(in);
    s.gradients_follow_formula(in);
    in.k = column({200, 201});
    s.follows_formula(in);
    s.gradients_follow_formula(in);
  }
}

void check_large_score_digits(Subject& s) {
  // The scores are s^2 and s^2 - 1, exact in float32. The weights are 1 / (1 + 1/e) and the rest.
  for (const double size : {32.0, 256.0, 1024.0}) {
    Arguments in = {s.rows({size, 1, size, 1}, 2), s.rows({size, 0, size, -1}, 2),
                    s.rows({0, 0, 1, 1}, 2)};
    in.options.scale = 1.0;
    s.close(s.call(in), at::full({1, 2, 2}, 0.2689414213699951, at::kDouble));
  }
}

// ---- Dtypes and errors.

template <at::ScalarType type>
void check_dtype(Subject& s) {
  s.dtype = type;
  const Arguments in = s.inputs({2}, 5, 5, 8, 8);
  const Tensor output = s.call(in);
  if (output.scalar_type() != type) {
    s.fail("another dtype", c10::str("expected ", type, ", got ", output.scalar_type()));
  }
  s.close(output, s.formula(in).output);
  s.follows_formula(s.inputs({2}, 130, 130, 33, 33));
  Arguments large = s.inputs({2}, 9, 9, 16, 16);
  large.v = large.v + 10;
  s.follows_formula(large);
}

void check_output_dtype(Subject& s) {
  const Tensor output = s.call(s.inputs({2}, 5, 5, 8, 8));
  if (output.scalar_type() != s.dtype || output.device() != s.device) {
    s.fail("another dtype or device",
           c10::str("got ", output.scalar_type(), " on ", output.device()));
  }
}

void check_integers_refused(Subject& s) {
  const Tensor x = at::ones({2, 5, 8}, at::device(s.device).dtype(at::kLong));
  s.refuses({x, x, x}, "q, k and v of int64");
}

void check_mixed_dtypes(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  const auto other = s.dtype == at::kDouble ? at::kFloat : at::kDouble;
  s.refuses({in.q, in.k.to(other), in.v}, "k of another dtype");
  s.refuses({in.q, in.k, in.v.to(other)}, "v of another dtype");
}

void check_shapes_refused(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  s.refuses({in.q, in.k.narrow(2, 0, 7), in.v}, "q and k of different head sizes");
  s.refuses({in.q, in.k, in.v.narrow(1, 0, 4)}, "k and v of different lengths");
  s.refuses({in.q[0][0], in.k[0][0], in.v[0][0]}, "one dimension");
  s.refuses({in.q, Tensor(), in.v}, "an undefined tensor");
}

void check_no_broadcast(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  s.refuses({in.q.narrow(0, 0, 1), in.k, in.v}, "q of another batch size");
  s.refuses({in.q, in.k.narrow(0, 0, 1), in.v.narrow(0, 0, 1)}, "k and v of another batch size");
}

void check_devices_refused(Subject& s) {
  Arguments in = s.inputs({2}, 5, 5, 8, 8);
  s.refuses({in.q, in.k.to(at::kMeta), in.v}, "k on another device");
}

void check_zero_width(Subject& s) {
  s.refuses(s.inputs({2}, 5, 5, 0, 8), "d_k = 0 without a scale");
}

// ---- Gradients.

void check_gradients(Subject& s) {
  s.gradients_follow_formula(s.inputs({2}, 5, 5, 8, 8));
  s.gradients_follow_formula(s.inputs({2}, 65, 65, 7, 7));
}

void check_gradient_subsets(Subject& s) {
  const Arguments in = s.inputs({2}, 5, 5, 8, 8);
  const Tensor upstream = s.draw({2, 5, 8});
  const detail::FormulaResult expected = s.formula(in, upstream);
  const Tensor q = in.q.clone().requires_grad_(), k = in.k.clone().requires_grad_(),
               v = in.v.clone().requires_grad_();
  s.close_gradient(s.gradients({q, in.k, in.v}, {q}, upstream)[0], expected.dq);
  s.close_gradient(s.gradients({in.q, k, in.v}, {k}, upstream)[0], expected.dk);
  s.close_gradient(s.gradients({in.q, in.k, v}, {v}, upstream)[0], expected.dv);
}

void check_one_key(Subject& s) {
  Arguments in = s.inputs({2}, 9, 1, 8, 8);
  in.q.requires_grad_();
  in.k = (in.k * 100).requires_grad_();
  const auto found = s.gradients(in, {in.q, in.k}, s.draw({2, 9, 8}));
  s.same(found[0], at::zeros({2, 9, 8}));
  s.same(found[1], at::zeros({2, 1, 8}));
}

// The gradient of sum(dq * direction) by central differences of the formula's dq.
void check_second_order(Subject& s) {
  Arguments in = s.inputs({1}, 3, 3, 2, 2);
  in = {in.q.requires_grad_(), in.k.requires_grad_(), in.v.requires_grad_()};
  const Tensor upstream = s.draw({1, 3, 2}), direction = s.draw({1, 3, 2});
  const Tensor output = s.call(in);
  if (!output.requires_grad()) return s.fail("no gradient", "");
  const Tensor dq = torch::autograd::grad({output}, {in.q}, {upstream}, /*retain_graph=*/true,
                                          /*create_graph=*/true)[0];
  if (!dq.requires_grad()) return s.fail("no gradient", "dq does not require a gradient");
  const auto found = torch::autograd::grad({dq}, {in.q, in.k, in.v}, {direction});
  const auto value = [&](const std::vector<Tensor>& x) {
    const Tensor first = detail::attention_formula(x[0], x[1], x[2], {}, upstream).dq;
    return (first * direction.to(at::kCPU, at::kDouble)).sum().item<double>();
  };
  for (size_t input = 0; input < 3; ++input) {
    std::vector<Tensor> x;
    for (const Tensor& t : {in.q, in.k, in.v}) {
      x.push_back(t.detach().to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true));
    }
    Tensor expected = at::zeros_like(x[input]);
    constexpr double kStep = 1e-5;
    for (int64_t i = 0; i < 6; ++i) {
      Tensor moved = x[input].view(-1)[i];
      moved.add_(kStep);
      const double above = value(x);
      moved.sub_(2 * kStep);
      const double below = value(x);
      moved.add_(kStep);
      expected.view(-1)[i].fill_((above - below) / (2 * kStep));
    }
    const double unit = std::max(roundoff(s.dtype), 1e-10);
    s.equal_values(found[input], expected, 500 * unit, 100 * unit);
  }
}

// ---- Grouped queries.

void check_grouped(Subject& s) {
  for (const int64_t heads : {1, 2, 4}) {
    Arguments in = s.inputs({2, 4}, 5, 5, 8, 8);
    in.k = in.k.narrow(1, 0, heads);
    in.v = in.v.narrow(1, 0, heads);
    in.options.grouped_queries = true;
    s.follows_formula(in);
    s.gradients_follow_formula(in);
  }
}

void check_groups_refused(Subject& s) {
  Arguments in = s.inputs({2, 4}, 5, 5, 8, 8);
  in.options.grouped_queries = true;
  s.refuses({in.q, in.k.narrow(1, 0, 3), in.v.narrow(1, 0, 3), in.options},
            "4 query heads and 3 key/value heads");
}

// ---- Dropout.

Arguments with_dropout(Subject& s, double p, uint64_t seed) {
  Arguments in = s.inputs({2}, 16, 16, 16, 16);
  in.v = s.tensor(at::eye(16, at::kDouble)).expand({2, 16, 16});  // the output is the weights
  in.options.dropout = p;
  in.options.training = true;
  in.options.generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return in;
}

void check_dropout_off(Subject& s) {
  Arguments in = with_dropout(s, 0.5, 1);
  in.options.training = false;
  s.close(s.call(in), s.formula(in).output);
}

void check_dropout_values(Subject& s) {
  const Arguments in = with_dropout(s, 0.25, 1);
  const Tensor weights = s.formula(in).output;
  const Tensor output = s.call(in).detach().to(at::kCPU, at::kDouble);
  const Tensor kept = output.ne(0);
  s.equal_values(output, (weights / 0.75).masked_fill(kept.logical_not(), 0.0),
                 3 * roundoff(s.dtype) + 1e-4, 1e-5);
  const auto share = kept.to(at::kDouble).mean().item<double>();  // of 512: 0.75 +- 0.02
  if (std::abs(share - 0.75) > 0.1) {
    s.fail("another probability", c10::str("p = 0.25 kept ", share, " of the weights"));
  }
}

void check_dropout_seed(Subject& s) {
  Arguments in = with_dropout(s, 0.5, 1);
  const Tensor first = s.call(in), second = s.call(in);
  if (first.equal(second)) s.fail("the same weights", "a second call drops the same weights");
  in.options.generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{1});
  s.same(s.call(in), first);
}

void check_dropout_one(Subject& s) {
  Arguments in = with_dropout(s, 1.0, 1);
  s.same(s.call(in), at::zeros({2, 16, 16}));
  in.q.requires_grad_();
  const Tensor output = s.call(in);
  if (!output.requires_grad()) return;
  const auto found = torch::autograd::grad({output}, {in.q}, {at::ones_like(output)}, std::nullopt,
                                           /*create_graph=*/false, /*allow_unused=*/true);
  if (found[0].defined()) s.same(found[0], at::zeros({2, 16, 16}));
}

void check_dropout_refused(Subject& s) {
  for (const double p : {-0.1, 1.1, kNotANumber}) {
    s.refuses(with_dropout(s, p, 1), "a dropout that is not in [0, 1]");
  }
}

// ---- The points.

using Features = AttentionFeatures;
using Needs = bool (*)(const Features&);

constexpr Needs kAll = [](const Features&) { return true; };
constexpr Needs kSeparate = [](const Features& f) { return f.separate_inputs; };
constexpr Needs kMasks = [](const Features& f) { return f.masks; };
constexpr Needs kScale = [](const Features& f) { return f.scale; };
constexpr Needs kGradients = [](const Features& f) { return f.gradients; };
constexpr Needs kHalf = [](const Features& f) { return f.half_types; };
constexpr Needs kGroups = [](const Features& f) { return f.grouped_queries; };
constexpr Needs kDropout = [](const Features& f) { return f.dropout; };

struct Point {
  const char* rule;
  const char* expected;
  Needs needs;
  void (*check)(Subject&);
};

constexpr const char* kFormula = "the formula's values";
constexpr const char* kError = "an error";

const Point kPoints[] = {
    {"softmax(q kᵀ / √d_k) v", kFormula, kAll, check_known_values},
    {"any T and head size", kFormula, kAll, check_sizes},
    {"q, k, v (T, d)", kFormula, kAll, check_dimensions<2>},
    {"q, k, v (B, T, d)", kFormula, kAll, check_dimensions<3>},
    {"q, k, v (B, nh, T, d)", kFormula, kAll, check_dimensions<4>},
    {"q, k, v of five dimensions", kFormula, kAll, check_dimensions<5>},
    {"Tq ≠ Tk", kFormula, kSeparate, check_lengths},
    {"d_v ≠ d_k", kFormula, kSeparate, check_widths},
    {"any strides, of upstream gradients too", kFormula,
     [](const Features& f) { return f.gradients; }, check_strides},
    {"B = 0 or T = 0", "an empty tensor", kAll, check_empty},
    {"Tk = 0 or Tq = 0", "zeros, or an empty tensor", kSeparate, check_no_keys},
    {"inputs and thread count are unchanged, the output is new memory", "unchanged inputs", kAll,
     check_inputs_unchanged},
    {"scale 1, 0, negative", kFormula, kScale, check_scale_values},
    {"scale NaN or infinite", kError, kScale, check_scale_refused},
    {"bool mask: true = may attend", kFormula, kMasks, check_bool_mask},
    {"float mask, -infinity hides", kFormula, kMasks, check_float_mask},
    {"mask broadcasts from size 1 and fewer dimensions", kFormula, kMasks, check_mask_broadcast},
    {"float mask of another dtype", kFormula, kMasks, check_mask_dtypes},
    {"the lowest float32 in a mask does not hide", kFormula, kMasks, check_lowest_mask},
    {"gradient of a mask, alone", "the formula's gradient",
     [](const Features& f) { return f.masks && f.gradients; }, check_mask_gradient},
    {"mask of a wrong shape or of integers", kError, kMasks, check_mask_refused},
    {"mask of three dimensions for q of four", kError, kMasks, check_ambiguous_mask},
    {"causal, Tq = Tk", kFormula, [](const Features& f) { return f.upper_left; },
     check_causal<Causal::kUpperLeft, true>},
    {"causal upper left, Tq ≠ Tk", kFormula,
     [](const Features& f) { return f.upper_left && f.separate_inputs; },
     check_causal<Causal::kUpperLeft, false>},
    {"causal lower right, Tq ≠ Tk", kFormula,
     [](const Features& f) { return f.lower_right && f.separate_inputs; },
     check_causal<Causal::kLowerRight, false>},
    {"causal with a mask", kFormula, [](const Features& f) { return f.upper_left && f.masks; },
     check_causal_and_mask<Causal::kUpperLeft>},
    {"a query that sees no key, bool mask", "output 0", kMasks, check_empty_row<true>},
    {"a query that sees no key, float mask", "output 0", kMasks, check_empty_row<false>},
    {"gradients with a query that sees no key", "the formula's gradients",
     [](const Features& f) { return f.masks && f.gradients; }, check_empty_row_gradient},
    {"queries that see no key by causality", "output 0, finite gradients",
     [](const Features& f) { return f.lower_right && f.separate_inputs && f.gradients; },
     check_causal_empty_row},
    {"a hidden key has weight 0, however large its score", "weight 0",
     [](const Features& f) { return f.masks && f.separate_inputs; }, check_hidden_weight},
    {"NaN or infinity in a hidden key", "no effect",
     [](const Features& f) { return f.masks && f.separate_inputs; }, check_hidden_nan},
    {"NaN in a visible key", "NaN in the rows that see it",
     [](const Features& f) { return f.masks && f.separate_inputs; }, check_visible_nan},
    {"infinite scores", "NaN", kSeparate, check_infinite_scores},
    {"+infinity in a mask", "NaN in that row", kMasks, check_infinite_mask},
    {"scores of ±50,000", kFormula,
     [](const Features& f) { return f.separate_inputs && f.gradients; }, check_large_scores},
    {"digits of large scores", kFormula,
     [](const Features& f) { return f.separate_inputs && f.scale; }, check_large_score_digits},
    {"output in the dtype and on the device of q", "the dtype of q", kAll, check_output_dtype},
    {"float64", kFormula, kAll, check_dtype<at::kDouble>},
    {"bfloat16, computed in float32", "one rounding", kHalf, check_dtype<at::kBFloat16>},
    {"float16, computed in float32", "one rounding", kHalf, check_dtype<at::kHalf>},
    {"integers", kError, kAll, check_integers_refused},
    {"q, k, v of different dtypes", kError, kSeparate, check_mixed_dtypes},
    {"wrong shapes, an undefined tensor", kError, kSeparate, check_shapes_refused},
    {"leading dimensions are not broadcast", kError, kSeparate, check_no_broadcast},
    {"q, k, v on different devices", kError, kSeparate, check_devices_refused},
    {"d_k = 0 without a scale", kError, kSeparate, check_zero_width},
    {"gradients of q, k, v", "the formula's gradients", kGradients, check_gradients},
    {"gradient of one input alone", "the formula's gradient",
     [](const Features& f) { return f.gradients && f.separate_inputs; }, check_gradient_subsets},
    {"one key: dq and dk are 0", "0",
     [](const Features& f) { return f.gradients && f.separate_inputs; }, check_one_key},
    {"second-order gradients", "the formula's gradients",
     [](const Features& f) { return f.gradients && f.second_order; }, check_second_order},
    {"grouped queries", kFormula,
     [](const Features& f) { return f.grouped_queries && f.gradients; }, check_grouped},
    {"query heads not a multiple of key/value heads", kError, kGroups, check_groups_refused},
    {"dropout is off unless training", kFormula, kDropout, check_dropout_off},
    {"dropout zeroes weights and scales the rest", "weights / (1 - p)", kDropout,
     check_dropout_values},
    {"dropout follows the generator", "the same bits for a seed", kDropout, check_dropout_seed},
    {"dropout 1", "zeros", kDropout, check_dropout_one},
    {"dropout below 0, above 1, NaN", kError, kDropout, check_dropout_refused},
};

ConformancePoint run_point(const Point& point, const AttentionFunction& function,
                           const ConformanceOptions& options) {
  Subject subject(function, options);
  try {
    point.check(subject);
  } catch (const c10::Error& error) {
    subject.fail("error", error.what_without_backtrace());
  } catch (const std::exception& error) {
    subject.fail("error", error.what());
  }
  return {.rule = point.rule,
          .passed = subject.actual.empty(),
          .expected = point.expected,
          .actual = subject.actual,
          .detail = subject.detail};
}

}  // namespace

std::vector<ConformancePoint> check_attention(const AttentionFunction& function,
                                              const ConformanceOptions& options) {
  TORCH_CHECK(function != nullptr, "check_attention: expected a function, got an empty one");
  TORCH_CHECK(options.dtype == at::kDouble || options.dtype == at::kFloat || is_half(options.dtype),
              "check_attention: expected float32, float64, bfloat16 or float16, got ",
              options.dtype);
  const at::AutoGradMode with_gradients(true);
  std::vector<ConformancePoint> results;
  for (const Point& point : kPoints) {
    if (point.needs(options.features)) results.push_back(run_point(point, function, options));
  }
  return results;
}

}  // namespace mini
