// SPDX-License-Identifier: MIT
// Random calls of attention: sizes, strides, masks, options and magnitudes from (seed, index).
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "support/attention_support.h"

namespace mini::test {

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
inline at::Tensor in_layout(const at::Tensor& t, const std::string& layout) {
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

inline const std::vector<std::string> kLayouts = {
    "contiguous",        "contiguous",          "contiguous",
    "transposed",        "every second column", "columns of a larger tensor",
    "heads inside rows", "negated view",        "one row",
    "one head"};

inline at::Tensor draw_tensor(Draw& draw, const std::string& layout,
                              const std::vector<int64_t>& sizes, double magnitude, bool integer,
                              at::ScalarType dtype) {
  std::vector<int64_t> drawn = sizes;
  if (layout == "one row") drawn.end()[-2] = 1;
  if (layout == "one head") std::fill(drawn.begin(), drawn.end() - 2, 1);
  at::Tensor values = draw.normal(drawn) * std::pow(10.0, magnitude);
  if (integer) values = values.round();
  values = values.to(dtype);
  return drawn == sizes ? in_layout(values, layout) : values.expand(sizes);
}

// A mask, and the same as a string.
inline at::Tensor draw_mask(Draw& draw, const std::vector<int64_t>& scores, at::ScalarType dtype,
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

inline Configuration draw_configuration(uint64_t seed, uint64_t index) {
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

}  // namespace mini::test
