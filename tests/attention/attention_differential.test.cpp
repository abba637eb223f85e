// SPDX-License-Identifier: MIT
// Random configurations of attention against float64, within the error bound of the contract.
//
// A configuration is a function of (seed, index). A failure prints both. To run one configuration
// on every instruction set:
//   MINI_DIFFERENTIAL=SEED:INDEX build/release/bin/mini_tests "[differential]"
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "support/attention_support.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

// ---- Configurations.

class Draw {
 public:
  Draw(uint64_t seed, uint64_t index) : engine_(seed * 0x9E3779B97F4A7C15U + index) {
    generator_ = at::make_generator<at::CPUGeneratorImpl>(engine_());
  }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  bool chance(double probability) { return uniform(0, 1) < probability; }
  template <class T>
  T one_of(const std::vector<T>& choices) {
    return choices[engine_() % choices.size()];
  }
  at::Tensor normal(at::IntArrayRef sizes) { return at::randn(sizes, generator_, at::kDouble); }
  at::Tensor probabilities(at::IntArrayRef sizes) {
    return at::rand(sizes, generator_, at::kDouble);
  }

 private:
  std::mt19937_64 engine_;
  at::Generator generator_;
};

// Powers of 10: the magnitude of each input.
struct Magnitudes {
  double q = 0, k = 0, v = 0, upstream = 0, scale = 0;

  // Whether no intermediate value of the formula or its gradient overflows float32, and no result
  // exceeds 10^largest_result.
  bool fit(double largest_result, double sizes) const {
    constexpr double kLargest = 36;
    const double d_score = scale + v + upstream;
    const double intermediate =
        std::max({q + k, q + k + scale, v + upstream, d_score, upstream + scale});
    const double result = std::max({v, upstream, d_score + k, d_score + q});
    return intermediate + sizes < kLargest && result + sizes < std::min(largest_result, kLargest);
  }
  // Whether an intermediate value is subnormal or nearly so.
  bool underflow() const {
    return std::min({q, k, v, upstream, scale, q + k, q + k + scale, v + upstream, upstream + scale,
                     scale + v + upstream, scale + v + upstream + k, scale + v + upstream + q}) <
           -28;
  }
};

struct Configuration {
  std::string description;
  Inputs in;
  at::Tensor upstream;
  AttentionOptions options;
  double scale;
  bool needs[3];         // which of q, k and v need a gradient
  bool exact_scores;     // The scores are exact in float32 in any order of summation.
  bool underflow;        // only the absolute bound applies
  int64_t group;         // query heads per key/value head
  at::Tensor wide_mask;  // as the formula in the inputs' accumulation dtype reads it; or undefined
};

// The same values with other strides.
at::Tensor in_layout(const at::Tensor& t, const std::string& layout) {
  if (layout == "transposed") return t.transpose(-1, -2).contiguous().transpose(-1, -2);
  if (layout == "every second column") return at::stack({t, t}, -1).select(-1, 0);
  if (layout == "columns of a larger tensor") {
    return at::constant_pad_nd(t, {3, 3, 1, 1}, kNan)
        .slice(-2, 1, 1 + t.size(-2))
        .slice(-1, 3, 3 + t.size(-1));
  }
  if (layout == "heads inside rows" && t.dim() > 2) {
    return t.transpose(-3, -2).contiguous().transpose(-3, -2);
  }
  if (layout == "negated view") return at::_neg_view(-t);
  return t;
}

const std::vector<std::string> kLayouts = {
    "contiguous",        "contiguous",          "contiguous",
    "transposed",        "every second column", "columns of a larger tensor",
    "heads inside rows", "negated view",        "one row",
    "one head"};

at::Tensor draw_tensor(Draw& draw, const std::string& layout, const std::vector<int64_t>& sizes,
                       double magnitude, bool integer, at::ScalarType dtype) {
  std::vector<int64_t> drawn = sizes;
  if (layout == "one row") drawn.end()[-2] = 1;
  if (layout == "one head") std::fill(drawn.begin(), drawn.end() - 2, 1);
  at::Tensor values = draw.normal(drawn) * std::pow(10.0, magnitude);
  if (integer) values = values.round();
  values = values.to(dtype);
  return drawn == sizes ? in_layout(values, layout) : values.expand(sizes);
}

// A mask, and the same as a string.
at::Tensor draw_mask(Draw& draw, const std::vector<int64_t>& scores, at::ScalarType dtype,
                     std::string& description) {
  std::vector<int64_t> sizes(scores.end() - 2, scores.end());
  if (draw.chance(0.4)) sizes = scores;
  for (int64_t& size : sizes) {
    if (draw.chance(0.25)) size = 1;
  }
  if (draw.chance(0.1)) sizes = {sizes.back()};
  if (draw.chance(0.03)) sizes = {};
  const double hidden = draw.one_of<double>({0.0, 0.1, 0.5, 0.95});
  const double magnitude =
      dtype == at::kHalf ? draw.one_of<double>({0, 3}) : draw.one_of<double>({0, 3, 30});
  at::Tensor hides = draw.probabilities(sizes) < hidden;
  if (sizes.size() >= 2 && sizes.end()[-2] > 1 && draw.chance(0.3)) {
    hides.select(-2, 0).fill_(true);
  }
  at::Tensor mask =
      dtype == at::kBool
          ? hides.logical_not()
          : (draw.normal(sizes) * std::pow(10.0, magnitude)).to(dtype).masked_fill(hides, -kInf);
  const std::string layout =
      sizes.size() < 2 || dtype == at::kBool
          ? "contiguous"
          : draw.one_of<std::string>({"contiguous", "transposed", "every second column"});
  mask = in_layout(mask, layout);
  if (sizes.size() >= 2 && sizes.end()[-2] > 0 &&
      draw.chance(0.2)) {  // repeated rows, with stride 0
    mask = mask.narrow(-2, 0, 1).expand(sizes);
  }
  description += c10::str(", mask ", dtype, ' ', mask.sizes(), " strides ", mask.strides(),
                          " magnitude 1e", magnitude, " hidden ", hidden);
  return mask;
}

Configuration draw_configuration(uint64_t seed, uint64_t index) {
  Draw draw(seed, index);
  Configuration c;
  const at::ScalarType dtype =
      draw.one_of<at::ScalarType>({at::kFloat, at::kFloat, at::kFloat, at::kFloat, at::kFloat,
                                   at::kFloat, at::kFloat, at::kBFloat16, at::kHalf, at::kDouble});

  // Shapes around the boundaries of vectors, tiles, panels and blocks.
  const auto length = [&] {
    if (draw.chance(0.03)) return int64_t{0};
    if (draw.chance(0.4)) return draw.one_of<int64_t>({1, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    if (draw.chance(0.9)) {
      return draw.one_of<int64_t>({12, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 77});
    }
    return draw.one_of<int64_t>({127, 128, 129, 255, 256, 257, 300});
  };
  const auto width = [&] {
    return draw.one_of<int64_t>({1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 64, 65});
  };
  const int64_t Tq = length(), Tk = draw.chance(0.5) ? Tq : length();
  const int64_t d_k = draw.chance(0.01) ? 0 : width(), d_v = draw.chance(0.6) ? d_k : width();
  std::vector<int64_t> leading;
  const int64_t dim = draw.one_of<int64_t>({2, 3, 3, 4, 4, 4, 4, 5});
  for (int64_t d = 2; d < dim; ++d) leading.push_back(draw.one_of<int64_t>({1, 2, 2, 3}));
  if (dim > 2 && draw.chance(0.01)) leading[0] = 0;
  std::vector<int64_t> key_leading = leading;
  c.group = dim > 2 && draw.chance(0.2) ? draw.one_of<int64_t>({2, 3}) : 1;
  if (dim > 2) leading.back() *= c.group;
  c.options.grouped_queries = c.group > 1;
  c.options.causal =
      draw.one_of<Causal>({Causal::kNone, Causal::kNone, Causal::kUpperLeft, Causal::kLowerRight});
  const auto sizes = [](std::vector<int64_t> first, int64_t rows, int64_t columns) {
    first.push_back(rows);
    first.push_back(columns);
    return first;
  };

  // Magnitudes. Integer inputs have exact scores if the scale is a power of 2.
  const bool integer = draw.chance(0.2);
  const bool extreme = !integer && draw.chance(0.35);
  Magnitudes m;
  c.scale = d_k > 0 ? 1.0 / std::sqrt(static_cast<double>(d_k)) : 1.0;
  if (integer) {
    m.q = m.k = draw.uniform(0, dtype == at::kHalf ? 1 : 2);
    c.options.scale = draw.one_of<double>({1, -1, 0.5, 0.125, 0.3});
  } else if (extreme) {
    const bool half = dtype == at::kHalf;
    const double low = half ? -6 : -44, high = half ? 3 : 30;
    const double of_sizes =
        2.5 + std::log10(static_cast<double>((Tq + 1) * (Tk + 1) * (d_k + d_v + 1)));
    do {
      m = {draw.uniform(low, high), draw.uniform(low, high), draw.uniform(low, high),
           draw.uniform(low, high), draw.uniform(-30, 30)};
      if (draw.chance(0.6)) {  // scaled scores of moderate size
        m.scale = std::clamp(draw.uniform(-1, 3) - m.q - m.k, -36.0, 36.0);
      }
    } while (!m.fit(half ? 4.5 : 36, of_sizes));
    c.options.scale = draw.one_of<double>({1, -1}) * std::pow(10.0, m.scale);
  } else if (draw.chance(0.3)) {
    c.options.scale = draw.one_of<double>({0, 1, -1, 0.1, -3, 30});
  }
  if (d_k == 0 && !c.options.scale) c.options.scale = 1.0;
  if (c.options.scale) c.scale = *c.options.scale;
  c.underflow = m.underflow();

  std::string layouts[4];
  for (std::string& layout : layouts) layout = draw.one_of(kLayouts);
  c.in = {draw_tensor(draw, layouts[0], sizes(leading, Tq, d_k), m.q, integer, dtype),
          draw_tensor(draw, layouts[1], sizes(key_leading, Tk, d_k), m.k, integer, dtype),
          draw_tensor(draw, layouts[2], sizes(key_leading, Tk, d_v), m.v, false, dtype)};
  c.upstream = draw_tensor(draw, layouts[3], sizes(leading, Tq, d_v), m.upstream, false, dtype);
  if (draw.chance(0.15)) {  // the upstream gradient of sum()
    layouts[3] = "stride 0";
    c.upstream = at::full({}, std::pow(10.0, m.upstream)).to(dtype).expand(c.upstream.sizes());
  }
  for (bool& needs : c.needs) needs = draw.chance(0.7);

  c.description = c10::str(seed, ':', index, ' ', dtype, " q ", c.in.q.sizes(), " (", layouts[0],
                           ") k ", c.in.k.sizes(), " (", layouts[1], ") v ", c.in.v.sizes(), " (",
                           layouts[2], "), upstream ", layouts[3], integer ? ", integers" : "",
                           ", magnitudes 1e(", m.q, ' ', m.k, ' ', m.v, ' ', m.upstream,
                           "), scale ", c.scale, ", causal ", static_cast<int>(c.options.causal),
                           ", group ", c.group, ", gradients ", c.needs[0], c.needs[1], c.needs[2]);
  bool exact_mask = true;
  if (draw.chance(0.5)) {
    const auto mask_dtype = draw.one_of<at::ScalarType>(
        {at::kBool, at::kBool, at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kHalf});
    c.options.mask = draw_mask(draw, sizes(leading, Tq, Tk), mask_dtype, c.description);
    exact_mask = mask_dtype == at::kBool;
    c.wide_mask = *c.options.mask;
    if (!exact_mask) {
      if (dtype != at::kDouble) c.wide_mask = c.wide_mask.to(at::kFloat);
      c.wide_mask = c.wide_mask.to(at::kDouble);
    }
  }
  int exponent = 0;
  c.exact_scores = integer && exact_mask && std::frexp(std::abs(c.scale), &exponent) == 0.5;
  return c;
}

// ---- The reference and its error bound.

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
