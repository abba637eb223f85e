// SPDX-License-Identifier: MIT
// Random configurations of attention against float64, within the error bound of the contract.
//
// A configuration is a function of (seed, index). A failure prints both. To run one configuration
// on every instruction set:
//   MINI_DIFFERENTIAL=SEED:INDEX build/release/bin/mini_tests "[differential]"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention/random_configuration.h"
#include "support/attention_support.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

using Results = std::vector<at::Tensor>;  // output, dq, dk, dv; undefined if not computed

template <class Attention>
Results results_of(const Configuration& c, const Inputs& inputs, const Attention& attention) {
  const auto leaf = [](const at::Tensor& t, bool needs) {
    return t.detach().requires_grad_(needs);
  };
  const Inputs in{leaf(inputs.q, c.needs[0]), leaf(inputs.k, c.needs[1]),
                  leaf(inputs.v, c.needs[2])};
  const at::Tensor output = attention(in);
  Results all(4);
  all[0] = output.detach();
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& t : {in.q, in.k, in.v}) {
    if (t.requires_grad()) leaves.push_back(t);
  }
  if (leaves.empty()) return all;
  const auto found = torch::autograd::grad({output}, leaves, {c.upstream.to(output.scalar_type())});
  for (size_t i = 0, next = 0; i < 3; ++i) {
    if (c.needs[i]) all[i + 1] = found[next++];
  }
  return all;
}

struct Reference {
  Results exact;
  Results bound;  // on each element's error, beyond twice LibTorch's largest error
};

// True where a query sees a key.  Broadcasts to (..., Tq, Tk).
at::Tensor visible_positions(const Configuration& c) {
  const int64_t Tq = c.in.q.size(-2), Tk = c.in.k.size(-2);
  at::Tensor visible = at::ones({Tq, Tk}, at::kBool);
  if (c.options.causal == Causal::kUpperLeft) visible = visible.tril();
  if (c.options.causal == Causal::kLowerRight) visible = visible.tril(Tk - Tq);
  if (!c.options.mask) return visible;
  return visible.logical_and(c.options.mask->scalar_type() == at::kBool ? *c.options.mask
                                                                        : c.wide_mask.ne(-kInf));
}

// `relative` (1e-6 for float32) times the sum of the magnitudes of all terms of an element, which
// is 1e-6 times about 1 for inputs from N(0, 1). If the scores are rounded, LibTorch's error on one
// input may be small by chance, so the effect of such a rounding on the weights is added: `step`
// times the sum of magnitudes for each score. Where that is not small, a weight may be anything up
// to the largest softmax that rounded scores can give.
Reference make_reference(const Configuration& c) {
  const bool wide = c.in.q.scalar_type() == at::kDouble;
  const double relative = wide ? 4e-15 : 1e-6;
  const double step = wide ? 0x1p-51 : 0x1p-22;
  AttentionOptions options = c.options;
  if (options.mask) options.mask = c.wide_mask;
  Reference reference;
  at::Tensor weights, scores;
  reference.exact = results_of(c, c.in.to(at::kDouble), [&](const Inputs& in) {
    const AttentionSteps steps = attention_steps(in.q, in.k, in.v, options);
    weights = steps.weights.detach();
    scores = steps.scaled_scores.detach();
    return steps.output;
  });

  const auto repeated = [&](const at::Tensor& t) {
    const at::Tensor heads = t.to(at::kDouble);
    return c.group == 1 ? heads : heads.repeat_interleave(c.group, -3);
  };
  const at::Tensor q = c.in.q.to(at::kDouble), k = repeated(c.in.k), v = repeated(c.in.v);
  const at::Tensor d_output = c.upstream.to(at::kDouble);
  const at::Tensor d_weights = at::matmul(d_output, v.transpose(-1, -2));
  const at::Tensor delta = (weights * d_weights).sum(-1, true);
  const at::Tensor terms = at::matmul(d_output.abs(), v.abs().transpose(-1, -2)) + 1e-38;

  // Possible errors of the weights: underflow, and the rounding of the exponent.
  at::Tensor w = 1.2e-38 + step / 2 * weights * (weights + 1e-300).log().abs();
  if (!c.exact_scores && weights.numel() > 0) {
    const at::Tensor visible = visible_positions(c);
    at::Tensor size = at::matmul(q.abs(), k.abs().transpose(-1, -2)) * std::abs(c.scale);
    if (c.options.mask && c.wide_mask.scalar_type() != at::kBool) {
      scores = scores + c.wide_mask;
      size = size + c.wide_mask.abs();
    }
    const at::Tensor off = (size * step).masked_fill(visible.logical_not(), 0.0);
    const at::Tensor lowest_max =
        (scores - off).masked_fill(visible.logical_not(), -kInf).amax(-1, true);
    const at::Tensor most =
        (scores + off - lowest_max).clamp_max(0.0).exp().masked_fill(visible.logical_not(), 0.0);
    const at::Tensor first_order = weights * (off + (weights * off).sum(-1, true));
    w = w + at::where(off.amax(-1, true) < 0.1, first_order, most);
  }
  const at::Tensor all_w = w.sum(-1, true);
  const at::Tensor of_delta = (w * d_weights.abs()).sum(-1, true) + all_w * delta.abs();
  // Numbers below 1e-38 are multiples of 1.4e-45: the output, from which delta is computed, the
  // upstream gradient times scale, and dS.
  constexpr double kSubnormal = 1.4e-45;
  const at::Tensor v_sums = v.abs().sum(-1).unsqueeze(-2);  // (..., 1, Tk)
  const double scale = std::abs(c.scale);
  const at::Tensor d_scores =
      scale * (relative * weights * (terms + (weights * terms).sum(-1, true)) +
               w * (d_weights - delta).abs() +
               (weights + w) * (of_delta + kSubnormal * d_output.abs().sum(-1, true))) +
      kSubnormal * (weights * (v_sums + (weights * v_sums).sum(-1, true)) + std::max(1.0, scale));
  const at::Tensor p = relative * weights + w;

  const auto of_group = [&](const at::Tensor& t) {
    return c.group == 1 ? t : t.unflatten(-3, {t.size(-3) / c.group, c.group}).sum(-3);
  };
  reference.bound = {at::matmul(p, v.abs()) + all_w * reference.exact[0].abs(),
                     at::matmul(d_scores, k.abs()),
                     of_group(at::matmul(d_scores.transpose(-1, -2), q.abs())),
                     of_group(at::matmul(p.transpose(-1, -2), d_output.abs()))};
  // The rounding of the results to their dtype.
  const at::ScalarType dtype = c.in.q.scalar_type();
  const double rounding = dtype == at::kBFloat16 ? 0x1.01p-9 : dtype == at::kHalf ? 0x1.01p-12 : 0;
  const double smallest = dtype == at::kHalf ? 0x1p-25 : 1e-38;
  for (size_t i = 0; i < 4; ++i) {
    if (!reference.exact[i].defined()) continue;
    reference.bound[i] = reference.bound[i] + rounding * reference.exact[i].abs() + smallest +
                         (c.underflow ? 1e-6 : 0.0);
  }
  return reference;
}

// Largest errors of LibTorch's attention, or of the composite path where LibTorch refuses the case
// or its result is not finite.
std::vector<double> peer_errors(const Configuration& c, const Reference& reference) {
  const auto errors = [&](const Results& results) {
    std::vector<double> largest(4, 0.0);
    for (size_t i = 0; i < 4; ++i) {
      if (!results[i].defined() || results[i].numel() == 0) continue;
      largest[i] = (results[i].to(at::kDouble) - reference.exact[i]).abs().max().item<double>();
    }
    return largest;
  };
  const auto all_finite = [](const std::vector<double>& all) {
    return std::all_of(all.begin(), all.end(), [](double e) { return std::isfinite(e); });
  };
  const at::ScalarType dtype = c.in.q.scalar_type();
  const auto& mask = c.options.mask;
  if (!mask || mask->scalar_type() == at::kBool || mask->scalar_type() == dtype) {
    try {
      std::optional<at::Tensor> given = mask;
      const bool is_causal = !mask && c.options.causal == Causal::kUpperLeft;
      if (c.options.causal != Causal::kNone && !is_causal) {
        const at::Tensor visible = visible_positions(c);
        given = !mask || mask->scalar_type() == at::kBool
                    ? visible
                    : mask->masked_fill(visible.logical_not(), -kInf);
      }
      const auto found = errors(results_of(c, c.in, [&](const Inputs& in) {
        return at::scaled_dot_product_attention(in.q, in.k, in.v, given, 0.0, is_causal, c.scale,
                                                c.options.grouped_queries);
      }));
      if (all_finite(found)) return found;
    } catch (const c10::Error&) {  // a case that LibTorch refuses
    }
  }
  const auto found = errors(results_of(c, c.in, [&](const Inputs& in) {
    return attention_steps(in.q, in.k, in.v, c.options).output;
  }));
  return all_finite(found) ? found : std::vector<double>(4, 0.0);
}

const char* const kNames[] = {"output", "dq", "dk", "dv"};

// Returns a message if a result exceeds its bound, otherwise "".
std::string check_one(const Configuration& c, const Reference& reference,
                      const std::vector<double>& peer) {
  const Results actual = results_of(c, c.in, [&](const Inputs& in) {
    return mini::scaled_dot_product_attention(in.q, in.k, in.v, c.options);
  });
  std::string message;
  for (size_t i = 0; i < 4; ++i) {
    if (!actual[i].defined() || actual[i].numel() == 0) continue;
    const at::Tensor error =
        (actual[i].to(at::kDouble) - reference.exact[i]).abs().nan_to_num(kInf, kInf);
    const at::Tensor share = (error / (reference.bound[i] + 2 * peer[i])).flatten();
    const int64_t worst = share.argmax().item<int64_t>();
    const double worst_share = share[worst].item<double>();
    if (worst_share <= 1.0) continue;
    message += c10::str("\n  ", kNames[i], " at flat index ", worst, ": got ",
                        actual[i].flatten()[worst].item<double>(), ", expected ",
                        reference.exact[i].flatten()[worst].item<double>(), ", error ",
                        error.flatten()[worst].item<double>(), " is ", worst_share,
                        " times the bound; LibTorch's largest error is ", peer[i]);
  }
  return message.empty() ? message : kernels::target_name() + " " + c.description + message;
}

// Checks configurations [first, last) of a seed. `all_targets` runs each of them on every
// instruction set; otherwise the instruction sets take turns.
void check_configurations(uint64_t seed, uint64_t first, uint64_t last, bool all_targets) {
  const std::vector<std::string> targets = kernels::supported_targets();
  int failures = 0;
  for (uint64_t index = first; index < last && failures < 20; ++index) {
    const Configuration c = draw_configuration(seed, index);
    const Reference reference = make_reference(c);
    const std::vector<double> peer = peer_errors(c, reference);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (!all_targets && index % targets.size() != t) continue;
      kernels::set_target(targets[t]);
      const std::string message = check_one(c, reference, peer);
      if (message.empty()) continue;
      FAIL_CHECK(message);
      ++failures;
    }
  }
  CHECK(failures == 0);
  kernels::set_target("");
}

}  // namespace

TEST_CASE("random configurations are within the error bound", "[attention][differential]") {
  if (const char* one = std::getenv("MINI_DIFFERENTIAL")) {
    unsigned long long seed = 0, index = 0;
    REQUIRE(std::sscanf(one, "%llu:%llu", &seed, &index) == 2);
    check_configurations(seed, index, index + 1, /*all_targets=*/true);
    return;
  }
  check_configurations(1, 0, 2000, /*all_targets=*/false);
}

TEST_CASE("20,000 random configurations are within the error bound on every instruction set",
          "[attention][differential_all][.slow]") {
  check_configurations(2, 0, 20000, /*all_targets=*/true);
}
