// Activations: SiLU, GELU by erf and by tanh, the square of ReLU, the gates of gpt-oss; built only from IEEE
// operations, so that their bits agree on every target.
#pragma once

#include "configuration.h"
#include "packed.h"

// 2^f, for an f of at most a half in magnitude: the polynomial 1 + f q(f) nearest to it. With it and fast_reciprocal,
// GELU took 37.7 instructions per element on Hopper; with e^r and Newton steps, 42.7.
template <typename Floats>
JITNORM_INLINE Floats exp2_of_rest(Floats f) {
  Floats p = 0x1.5bb9fcp-10f;
  p = fma_rn(p, f, 0x1.3cea9ep-7f);
  p = fma_rn(p, f, 0x1.c6b752p-5f);
  p = fma_rn(p, f, 0x1.ebf9bep-3f);
  p = fma_rn(p, f, 0x1.62e42ap-1f);
  return fma_rn(p, f, 1.0f);
}

// 2^n, for an n that was added to 1.5 * 2^23, so that the lowest bits of the sum hold it.
template <typename Floats>
JITNORM_INLINE Floats power_of_two(Floats shifted) {
  return of_each([](float each) { return float_of(bits_of(each) * 0x800000u + 0x3f800000u); }, shifted);
}

// 1 / (1 + 2^-z), for a product z = x (factor + low) of at most 125.5 in magnitude, which is never rounded as a whole:
// its absolute error would become a relative error of the result.
template <typename Floats, typename Factors>
JITNORM_INLINE Floats sigmoid_of_product(Floats x, Factors factor, Factors low) {
  const Floats shifted = fma_rn(x, -factor, 0x1.8p23f);
  const Floats n = add_rn(shifted, -0x1.8p23f);
  const Floats rest = fma_rn(x, -low, fma_rn(x, -factor, -n));
  return fast_reciprocal(fma_rn(exp2_of_rest(rest), power_of_two(shifted), 1.0f));
}

// sum + factor * (x^2 - square), where the square is rounded. Squares of narrow inputs are exact, so nothing is added;
// a norm of them is float32.
template <typename Floats>
JITNORM_INLINE Floats add_rest_of_square(Floats sum, float factor, Floats x, Floats square) {
  if constexpr (sizeof(Input) < sizeof(float) && kOp == Op::kQuantize) return sum;
  return fma_rn(fma_rn(x, x, -square), factor, sum);
}

// The probability that a standard normal variable exceeds an x from 0 to 12.75: 2^(-k x^2) p(t), where k is the float
// nearest to 1 / (2 ln 2). The polynomial makes up for what k lacks: with a second part of k and t p(t), GELU to NVFP4
// took 41.0 instructions per element of rows of 4096 on Hopper, not 37.0.
template <typename Floats>
JITNORM_INLINE Floats normal_tail(Floats x) {
  const Floats square = mul_rn(x, x);
  const Floats shifted = fma_rn(square, -0x1.715476p-1f, 0x1.8p23f);
  const Floats n = add_rn(shifted, -0x1.8p23f);
  const Floats rest = add_rest_of_square(fma_rn(square, -0x1.715476p-1f, -n), -0x1.715476p-1f, x, square);
  // The product with 2^n is normal, so n is added to the exponent.
  const Floats power =
      of_each([](float power, float exponent) { return float_of(bits_of(power) + bits_of(exponent) * 0x800000u); },
              exp2_of_rest(rest), shifted);
  const Floats t = fast_reciprocal(fma_rn(x, 0x1.2d8p-2f, 1.0f));
  Floats p = 0x1.46ae22p-5f;
  p = fma_rn(p, t, -0x1.7e31c6p-3f);
  p = fma_rn(p, t, 0x1.1dce08p-2f);
  p = fma_rn(p, t, -0x1.00bb4p-3f);
  p = fma_rn(p, t, 0x1.5f119p-3f);
  p = fma_rn(p, t, 0x1.5273b6p-4f);
  p = fma_rn(p, t, 0x1.f35a2ep-4f);
  p = fma_rn(p, t, 0x1.df4522p-4f);
  p = fma_rn(p, t, 0x1.4b8f56p-16f);
  return mul_rn(power, p);
}

// a, but at most `limit`; NaN stays.
template <typename Floats>
JITNORM_INLINE Floats min_or_nan(Floats a, float limit) {
  return -max_or_nan(-a, -limit);
}

// x / (1 + e^(-alpha x)), where alpha / ln 2 is factor + low. Values below -bound count as -bound; only the sign of
// their result is left.
template <typename Floats>
JITNORM_INLINE Floats swish(Floats x, float factor, float low, float bound) {
  const Floats bounded = max_or_nan(x, -bound);
  return mul_rn(bounded, sigmoid_of_product(min_or_limit(bounded, bound), factor, low));
}

// The same for an alpha of 1.
constexpr float kSiluFactor = 0x1.715476p+0f, kSiluLow = 0x1.4ae0cp-26f, kSiluBound = 0x1.5a92d8p+6f;

// e^t, for a t up to 0. Values below -kSiluBound count as -kSiluBound.
JITNORM_INLINE float exponential(float t) {
  const float bounded = max_or_nan(t, -kSiluBound);
  const float shifted = fma_rn(bounded, kSiluFactor, 0x1.8p23f);
  const float n = add_rn(shifted, -0x1.8p23f);
  const float rest = fma_rn(bounded, kSiluLow, fma_rn(bounded, kSiluFactor, -n));
  return mul_rn(exp2_of_rest(rest), power_of_two(shifted));
}

template <Activation>
struct ActivationOf;

template <Activation kKind, typename Floats>
JITNORM_INLINE Floats activated(Floats x) {
  return ActivationOf<kKind>::at(x);
}

// x / (1 + e^-x).
template <>
struct ActivationOf<Activation::kSilu> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    return swish(x, kSiluFactor, kSiluLow, kSiluBound);
  }
};

// x times the probability that a standard normal variable is below x: max(x, 0) - a tail(a).
template <>
struct ActivationOf<Activation::kGeluErf> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    const Floats a = min_or_limit(magnitude_of(x), 12.75f);
    return fma_rn(-a, normal_tail(a), max_or_nan(x, -0.0f));
  }
};

// The same by tanh, x / 2 (1 + tanh u), which is x / (1 + e^-2u): 2u = sqrt(8 / pi) (x + 0.044715 x^3).
template <>
struct ActivationOf<Activation::kGeluTanh> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    const Floats bounded = max_or_nan(x, -9.96875f), t = min_or_limit(bounded, 9.96875f);
    const Floats square = mul_rn(t, t);
    const Floats factor = fma_rn(square, 0x1.a5a7dp-4f, 0x1.26aecp+1f);
    const Floats rounded = fma_rn(square, 0x1.a5a7dp-4f, add_rn(0x1.26aecp+1f, -factor));
    const Floats low = fma_rn(square, -0x1.151aaep-29f, add_rest_of_square(rounded, 0x1.a5a7dp-4f, t, square));
    return mul_rn(bounded, sigmoid_of_product(t, factor, add_rn(low, 0x1.0de73ap-22f)));
  }
};

// max(x, 0)^2.
template <>
struct ActivationOf<Activation::kRelu2> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    const Floats positive = max_or_nan(x, 0.0f);
    return mul_rn(positive, positive);
  }
};

// Only for gates: those of gpt-oss, x / (1 + e^(-1.702 x)) for an x up to 7. Gates below -51 count as -51.
template <>
struct ActivationOf<Activation::kSwigluOai> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    const Floats bounded = max_or_nan(min_or_nan(x, 7.0f), -51.0f);
    return mul_rn(bounded, sigmoid_of_product(min_or_limit(bounded, 7.0f), 0x1.3a4cbep+1f, 0x1.7c622ep-28f));
  }
};

// 1 / (1 + e^-x), for an x of up to kSiluBound in magnitude. The choice is a branch: on an H200, mhc_pre with a norm of
// the streams of 41296 x 384 takes 1.08 times as long if the product is computed for NaN, too.
JITNORM_INLINE float sigmoid(float x) {
  const float bounded = min_or_limit(max_or_nan(x, -kSiluBound), kSiluBound);
  return x == x ? sigmoid_of_product(bounded, kSiluFactor, kSiluLow) : x;
}

#ifdef JITNORM_GATES
// For gates in a separate tensor.
template <>
struct ActivationOf<Activation::kSigmoid> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    return of_each([](float each) { return sigmoid(each); }, x);
  }
};
#endif

// What the activation of a gate is multiplied by: the value.
template <Activation>
JITNORM_INLINE float factor_of_gate(float value) {
  return value;
}

// In gpt-oss: value + 1, for a value clamped to -7 to 7.
template <>
JITNORM_FORCE_INLINE float factor_of_gate<Activation::kSwigluOai>(float value) {
  return add_rn(max_or_nan(min_or_nan(value, 7.0f), -7.0f), 1.0f);
}

#ifdef JITNORM_ACTIVATION_NUMBERS
template <typename Floats>
JITNORM_INLINE Floats own_swish(Floats x) {
  return swish(x, kSwishFactor, kSwishLow, kSwishBound);
}

template <>
struct ActivationOf<Activation::kSwish> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    return own_swish(x);
  }
};

// Only for gates: for an x up to the limit.
template <>
struct ActivationOf<Activation::kClampedSwiglu> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    return own_swish(min_or_nan(x, kGateLimit));
  }
};

// A value clamped to the limit in magnitude, plus an offset if there is one.
template <>
JITNORM_FORCE_INLINE float factor_of_gate<Activation::kClampedSwiglu>(float value) {
  const float clamped = max_or_nan(min_or_nan(value, kGateLimit), -kGateLimit);
  return kValueOffset == 0.0f ? clamped : add_rn(clamped, kValueOffset);
}

// x above the threshold, else zero; NaN stays.
template <>
struct ActivationOf<Activation::kFatRelu> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    return of_each([](float x) { return x <= kThreshold ? 0.0f : x; }, x);
  }
};
#endif
