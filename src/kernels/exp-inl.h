// SPDX-License-Identifier: MIT
// 2^x on a vector: the exponential of the softmax. x already contains the factor log2(e).
//
//   2^x = 2^n * 2^r,  n an integer near x,  r = x - n,  2^r a polynomial of degree 5
//
// The relative error is below 2.0e-7 for x >= -126. For smaller x the result may be 0. 2^0 is
// exactly 1, 2^-infinity is exactly 0, and NaN remains NaN.

// clang-format off
#if defined(MINI_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINI_KERNELS_EXP_INL_H_
#undef MINI_KERNELS_EXP_INL_H_
#else
#define MINI_KERNELS_EXP_INL_H_
#endif
// clang-format on

#include "hwy/highway.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

// 1 + r (c1 + r (c2 + ...)). The coefficients minimise the relative error; 2^0 = 1 is exact.
HWY_INLINE V Exp2Polynomial(V r, float c1, float c2, float c3, float c4, float c5) {
  const D d;
  V p = hn::MulAdd(hn::Set(d, c5), r, hn::Set(d, c4));
  p = hn::MulAdd(p, r, hn::Set(d, c3));
  p = hn::MulAdd(p, r, hn::Set(d, c2));
  p = hn::MulAdd(p, r, hn::Set(d, c1));
  return hn::MulAdd(p, r, hn::Set(d, 1.0F));
}

#if HWY_TARGET <= HWY_AVX3

// Requires x <= 128. AVX-512 has one instruction that splits x at floor(x), so 0 <= r < 1, and one
// that multiplies by 2^floor(x).
HWY_INLINE V Exp2(V x) {
  const V r{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  const V p = Exp2Polynomial(r, 0.6931512951850891F, 0.24016444385051727F, 0.05579991266131401F,
                             0.009017030708491802F, 0.0018671300495043397F);
  return V{_mm512_scalef_ps(p.raw, x.raw)};
}

// 2^(a * b)
struct Exp2OfProduct {
  HWY_INLINE explicit Exp2OfProduct(V b_) : b(b_) {}
  HWY_INLINE V operator()(V a) const { return Exp2(hn::Mul(a, b)); }
  V b;
};

#else

inline constexpr float kLowestExponent = -127.0F;  // 2^x is 0 here and below
// Adding 1.5 * 2^23 + 127 to x puts round(x) + 127 in the low bits of the sum. That is the exponent
// field of 2^round(x).
inline constexpr float kToInteger = 12583039.0F;

// The larger number, or NaN if x is NaN.
HWY_INLINE V AtLeast(V lowest, V x) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(lowest, x);  // x86 returns the second operand if one is NaN
#else
  return hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
#endif
}

// 2^(n + r) with shifted = n + kToInteger and -0.5 <= r <= 0.5.
HWY_INLINE V Exp2OfParts(V shifted, V r) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V p = Exp2Polynomial(r, 0.6931470036506653F, 0.24022242426872253F, 0.05550733581185341F,
                             0.009671512991189957F, 0.001326472731307149F);
  // Multiply by the power: adding n to the exponent of p would turn NaN into a number.
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Requires x <= 127.
HWY_INLINE V Exp2(V x) {
  const V to_integer = hn::Set(D(), kToInteger);
  x = AtLeast(hn::Set(D(), kLowestExponent), x);
  const V shifted = hn::Add(x, to_integer);
  return Exp2OfParts(shifted, hn::Sub(x, hn::Sub(shifted, to_integer)));
}

// 2^(a * b) for a <= 0 <= b. The multiplication is part of the splitting and is not rounded.
struct Exp2OfProduct {
  HWY_INLINE explicit Exp2OfProduct(V b_)
      : b(b_), lowest(hn::Div(hn::Set(D(), kLowestExponent), b_)) {}
  HWY_INLINE V operator()(V a) const {
    const V to_integer = hn::Set(D(), kToInteger);
    a = AtLeast(lowest, a);
    const V shifted = hn::MulAdd(a, b, to_integer);
    return Exp2OfParts(shifted, hn::MulSub(a, b, hn::Sub(shifted, to_integer)));
  }
  V b, lowest;
};

#endif

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
