// SPDX-License-Identifier: MIT
// Compiled once for each instruction set; targets.h chooses one at run time.
#include "kernels/block_kernel.h"

#include <algorithm>
#include <cmath>

// Highway includes this file once per instruction set and requires this order.
// clang-format off
#include "kernels/disabled_targets.h"
#include "strict_math.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_kernel.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/dispatch.h"
#include "kernels/exp-inl.h"
#include "kernels/tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

// ---- GELU

// c[0] + c[1] t + c[2] t^2 + ...
template <int kTerms>
HWY_INLINE V Polynomial(V t, const float (&c)[kTerms]) {
  const D d;
  V sum = hn::Set(d, c[kTerms - 1]);
  MINI_UNROLL for (int i = kTerms - 2; i >= 0; --i) sum = hn::MulAdd(sum, t, hn::Set(d, c[i]));
  return sum;
}

// p / q. On AVX-512, one division of 16 lanes takes as long as 32 multiplications, so the quotient
// is an approximation of 14 bits with one correction. It is NaN if q is 0 or infinite.
HWY_INLINE V Quotient(V p, V q) {
#if HWY_TARGET <= HWY_AVX3
  const V near_inverse = hn::ApproximateReciprocal(q);
  const V near = hn::Mul(p, near_inverse);
  return hn::MulAdd(near_inverse, hn::NegMulAdd(q, near, p), near);
#else
  return hn::Div(p, q);
#endif
}

// The distribution function of N(0, 1) at x, with t = x^2. Phi(x) = 1/2 + x P(t) / Q(t) for
// |x| <= 5.6; beyond that Phi is 0 or 1 in float32. P and Q minimise the relative error of the
// quotient, which is 2.2e-8. In float32 the absolute error is 1.6e-7.
HWY_INLINE V NormalDistribution(V x, V t) {
  const D d;
  constexpr float kP[] = {0.3989422619342804F,     0.033926427364349365F,  0.004677180666476488F,
                          0.00016890213009901345F, 6.289532393566333e-06F, 2.2298959123645545e-08F};
  constexpr float kQ[] = {1.0F,
                          0.2517072856426239F,
                          0.028676042333245277F,
                          0.0018853364745154977F,
                          7.333526446018368e-05F,
                          1.1796848866651999e-06F};
  const V quotient = Quotient(Polynomial(t, kP), Polynomial(t, kQ));
  const V half = hn::Set(d, 0.5F);
  const V inside = hn::MulAdd(x, quotient, half);
  const V outside = hn::Add(half, hn::CopySign(half, x));
  return hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Set(d, 5.6F)), outside, inside);
}

void Gelu(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const V v = LoadFirst(n - i, x + i);
    StoreFirst(hn::Mul(v, NormalDistribution(v, hn::Mul(v, v))), n - i, y + i);
  }
}

void GeluBackward(const float* dy, const float* x, int64_t n, float* dx) {
  const D d;
  const V density_at_0 = hn::Set(d, 0.3989422804014327F);  // 1 / sqrt(2 pi)
  const V minus_half_log2e = hn::Set(d, -0.7213475204444817F);
  for (int64_t i = 0; i < n; i += kLanes) {
    const V v = LoadFirst(n - i, x + i);
    const V t = hn::Mul(v, v);
    const V density = hn::Mul(density_at_0, Exp2(hn::Mul(minus_half_log2e, t)));
    const V slope = hn::MulAdd(v, density, NormalDistribution(v, t));
    StoreFirst(hn::Mul(LoadFirst(n - i, dy + i), slope), n - i, dx + i);
  }
}

// ---- Layer norm

// Calls body(first column, number of remaining columns) for each vector of a row.
template <class Body>
HWY_INLINE void ForEachVector(int64_t width, const Body& body) {
  for (int64_t c = 0; c < width; c += kLanes) body(c, width - c);
}

HWY_INLINE float Sum(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

void LayerNorm(const Norm& norm, const float* x, int64_t rows, float* y, float* mean, float* rstd) {
  const D d;
  const int64_t width = norm.width;
  const auto count = static_cast<float>(width);
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    V sum = hn::Zero(d);
    ForEachVector(width, [&](int64_t c, int64_t n) { sum = hn::Add(sum, LoadFirst(n, x + c)); });
    const float near_mean = Sum(sum) / count;
    const V near = hn::Set(d, near_mean);

    // `near_mean` is rounded at the size of the numbers. The sums of deviations are rounded at the
    // size of the spread, so they correct the mean of a row whose numbers are almost equal.
    V deviations = hn::Zero(d), squares = hn::Zero(d);
    ForEachVector(width, [&](int64_t c, int64_t n) {
      V away = hn::Sub(LoadFirst(n, x + c), near);
      if (n < kLanes) away = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), away);
      deviations = hn::Add(deviations, away);
      squares = hn::MulAdd(away, away, squares);
    });
    const float correction = Sum(deviations) / count;
    mean[row] = near_mean + correction;
    const float variance = std::max(Sum(squares) / count - correction * correction, 0.0F);
    rstd[row] = 1.0F / std::sqrt(variance + norm.eps);
    const V m = hn::Set(d, mean[row]);
    const V r = hn::Set(d, rstd[row]);

    ForEachVector(width, [&](int64_t c, int64_t n) {
      const V normed = hn::Mul(hn::Sub(LoadFirst(n, x + c), m), r);
      const V bias = norm.bias != nullptr ? LoadFirst(n, norm.bias + c) : hn::Zero(d);
      StoreFirst(hn::MulAdd(normed, LoadFirst(n, norm.weight + c), bias), n, y + c);
    });
  }
}

// With n = (x - mean) rstd and g = dy weight:  dx = rstd (g - mean(g) - n mean(g n)),
// dweight = sum of dy n, dbias = sum of dy.
void LayerNormBackward(const Norm& norm, const NormGradients& gradients, int64_t rows) {
  const D d;
  const int64_t width = norm.width;
  const float share = 1.0F / static_cast<float>(width);
  ForEachVector(width, [&](int64_t c, int64_t n) {
    StoreFirst(hn::Zero(d), n, gradients.dweight + c);
    StoreFirst(hn::Zero(d), n, gradients.dbias + c);
  });
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = gradients.x + row * width;
    const float* dy = gradients.dy + row * width;
    float* dx = gradients.dx + row * width;
    const V m = hn::Set(d, gradients.mean[row]);
    const V r = hn::Set(d, gradients.rstd[row]);
    const auto normed = [&](int64_t c, int64_t n) {
      return hn::Mul(hn::Sub(LoadFirst(n, x + c), m), r);
    };
    V sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
    ForEachVector(width, [&](int64_t c, int64_t n) {
      const V upstream = LoadFirst(n, dy + c), at = normed(c, n);
      const V g = hn::Mul(upstream, LoadFirst(n, norm.weight + c));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, at, sum_gn);
      float *dweight = gradients.dweight + c, *dbias = gradients.dbias + c;
      StoreFirst(hn::MulAdd(upstream, at, LoadFirst(n, dweight)), n, dweight);
      StoreFirst(hn::Add(upstream, LoadFirst(n, dbias)), n, dbias);
    });
    const V mean_g = hn::Set(d, Sum(sum_g) * share), mean_gn = hn::Set(d, Sum(sum_gn) * share);
    ForEachVector(width, [&](int64_t c, int64_t n) {
      const V g = hn::Mul(LoadFirst(n, dy + c), LoadFirst(n, norm.weight + c));
      StoreFirst(hn::Mul(r, hn::NegMulAdd(normed(c, n), mean_gn, hn::Sub(g, mean_g))), n, dx + c);
    });
  }
}

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mini::kernels {

HWY_EXPORT(Gelu);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(LayerNormBackward);

void gelu(const float* x, int64_t n, float* y) { MINI_DISPATCH(Gelu)(x, n, y); }
void gelu_backward(const float* dy, const float* x, int64_t n, float* dx) {
  MINI_DISPATCH(GeluBackward)(dy, x, n, dx);
}
void layer_norm(const Norm& norm, const float* x, int64_t rows, float* y, float* mean,
                float* rstd) {
  MINI_DISPATCH(LayerNorm)(norm, x, rows, y, mean, rstd);
}
void layer_norm_backward(const Norm& norm, const NormGradients& gradients, int64_t rows) {
  MINI_DISPATCH(LayerNormBackward)(norm, gradients, rows);
}

}  // namespace mini::kernels
#endif  // HWY_ONCE
