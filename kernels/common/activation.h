// Activations: SiLU, GELU by erf and by tanh, the square of ReLU, the gates of gpt-oss; built only from IEEE
// operations, so that their bits agree on every target.
#pragma once

#include "configuration.h"
#include "intrinsics.h"

// 2^f, for an f of at most a half in magnitude: the polynomial 1 + f q(f) nearest to it. With it and fast_reciprocal,
// GELU takes 37.7 instructions per element on Hopper; with e^r and Newton steps it took 42.7.
JITNORM_INLINE float exp2_of_rest(float f) {
  float p = 0x1.5bb9fcp-10f;
  p = fma_rn(p, f, 0x1.3cea9ep-7f);
  p = fma_rn(p, f, 0x1.c6b752p-5f);
  p = fma_rn(p, f, 0x1.ebf9bep-3f);
  p = fma_rn(p, f, 0x1.62e42ap-1f);
  return fma_rn(p, f, 1.0f);
}

// 2^n, for an n that was added to 1.5 * 2^23, so that the lowest bits of the sum hold it.
JITNORM_INLINE float power_of_two(float shifted) { return float_of(bits_of(shifted) * 0x800000u + 0x3f800000u); }

// 1 / (1 + 2^-z), for a product z = x (factor + low) of at most 125.5 in magnitude, which is never rounded as a whole:
// its absolute error would become a relative error of the result.
JITNORM_INLINE float sigmoid_of_product(float x, float factor, float low) {
  const float shifted = fma_rn(x, -factor, 0x1.8p23f);
  const float n = add_rn(shifted, -0x1.8p23f);
  const float rest = fma_rn(x, -low, fma_rn(x, -factor, -n));
  return fast_reciprocal(fma_rn(exp2_of_rest(rest), power_of_two(shifted), 1.0f));
}

// sum + factor * (x^2 - square), where the square is rounded. Squares of narrow inputs are exact, so nothing is added;
// a norm of them is float32.
JITNORM_INLINE float add_rest_of_square(float sum, float factor, float x, float square) {
  if constexpr (sizeof(Input) < sizeof(float) && kOp == Op::kQuantize) return sum;
  return fma_rn(fma_rn(x, x, -square), factor, sum);
}

// The probability that a standard normal variable exceeds an x from 0 to 12.75: e^(-x^2 / 2) t p(t).
JITNORM_INLINE float normal_tail(float x) {
  const float square = mul_rn(x, x);
  const float shifted = fma_rn(square, -0x1.715476p-1f, 0x1.8p23f);
  const float n = add_rn(shifted, -0x1.8p23f);
  const float rounded = fma_rn(square, -0x1.4ae0cp-27f, fma_rn(square, -0x1.715476p-1f, -n));
  const float rest = add_rest_of_square(rounded, -0x1.715476p-1f, x, square);
  // The product with 2^n is normal, so n is added to the exponent.
  const float exponential = float_of(bits_of(exp2_of_rest(rest)) + bits_of(shifted) * 0x800000u);
  const float t = fast_reciprocal(fma_rn(x, 0.34375f, 1.0f));
  float p = -0x1.cebea6p-6f;
  p = fma_rn(p, t, 0x1.2ab0cep-3f);
  p = fma_rn(p, t, -0x1.1a36p-2f);
  p = fma_rn(p, t, 0x1.8f88b4p-3f);
  p = fma_rn(p, t, -0x1.57ff0ep-5f);
  p = fma_rn(p, t, 0x1.d1cc36p-4f);
  p = fma_rn(p, t, 0x1.dd23eap-4f);
  p = fma_rn(p, t, 0x1.19c0bcp-3f);
  p = fma_rn(p, t, 0x1.18d14ap-3f);
  return mul_rn(mul_rn(exponential, t), p);
}

// a, but at most `limit`; NaN stays.
JITNORM_INLINE float min_or_nan(float a, float limit) { return -max_or_nan(-a, -limit); }

// x / (1 + e^(-alpha x)), where alpha / ln 2 is factor + low. Values below -bound count as -bound; only the sign of
// their result is left.
JITNORM_INLINE float swish(float x, float factor, float low, float bound) {
  const float bounded = max_or_nan(x, -bound);
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
JITNORM_INLINE float activated(float x);

// x / (1 + e^-x).
template <>
JITNORM_FORCE_INLINE float activated<Activation::kSilu>(float x) {
  return swish(x, kSiluFactor, kSiluLow, kSiluBound);
}

// x times the probability that a standard normal variable is below x.
template <>
JITNORM_FORCE_INLINE float activated<Activation::kGeluErf>(float x) {
  const float bounded = max_or_nan(x, -12.75f);
  const float tail = normal_tail(min_or_limit(magnitude_of(bounded), 12.75f));
  return mul_rn(bounded, bounded < 0.0f ? tail : add_rn(1.0f, -tail));
}

// The same by tanh, x / 2 (1 + tanh u), which is x / (1 + e^-2u): 2u = sqrt(8 / pi) (x + 0.044715 x^3).
template <>
JITNORM_FORCE_INLINE float activated<Activation::kGeluTanh>(float x) {
  const float bounded = max_or_nan(x, -9.96875f), t = min_or_limit(bounded, 9.96875f);
  const float square = mul_rn(t, t);
  const float factor = fma_rn(square, 0x1.a5a7dp-4f, 0x1.26aecp+1f);
  const float rounded = fma_rn(square, 0x1.a5a7dp-4f, add_rn(0x1.26aecp+1f, -factor));
  const float low = fma_rn(square, -0x1.151aaep-29f, add_rest_of_square(rounded, 0x1.a5a7dp-4f, t, square));
  return mul_rn(bounded, sigmoid_of_product(t, factor, add_rn(low, 0x1.0de73ap-22f)));
}

// max(x, 0)^2.
template <>
JITNORM_FORCE_INLINE float activated<Activation::kRelu2>(float x) {
  const float positive = max_or_nan(x, 0.0f);
  return mul_rn(positive, positive);
}

// Only for gates: those of gpt-oss, x / (1 + e^(-1.702 x)) for an x up to 7. Gates below -51 count as -51.
template <>
JITNORM_FORCE_INLINE float activated<Activation::kSwigluOai>(float x) {
  const float bounded = max_or_nan(min_or_nan(x, 7.0f), -51.0f);
  return mul_rn(bounded, sigmoid_of_product(min_or_limit(bounded, 7.0f), 0x1.3a4cbep+1f, 0x1.7c622ep-28f));
}

// 1 / (1 + e^-x), for an x of up to kSiluBound in magnitude.
JITNORM_INLINE float sigmoid(float x) {
  const float bounded = min_or_limit(max_or_nan(x, -kSiluBound), kSiluBound);
  return x == x ? sigmoid_of_product(bounded, kSiluFactor, kSiluLow) : x;
}

#ifdef JITNORM_GATES
// For gates in a separate tensor.
template <>
JITNORM_FORCE_INLINE float activated<Activation::kSigmoid>(float x) {
  return sigmoid(x);
}
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
JITNORM_INLINE float own_swish(float x) { return swish(x, kSwishFactor, kSwishLow, kSwishBound); }

template <>
JITNORM_FORCE_INLINE float activated<Activation::kSwish>(float x) {
  return own_swish(x);
}

// Only for gates: for an x up to the limit.
template <>
JITNORM_FORCE_INLINE float activated<Activation::kClampedSwiglu>(float x) {
  return own_swish(min_or_nan(x, kGateLimit));
}

// A value clamped to the limit in magnitude, plus an offset if there is one.
template <>
JITNORM_FORCE_INLINE float factor_of_gate<Activation::kClampedSwiglu>(float value) {
  const float clamped = max_or_nan(min_or_nan(value, kGateLimit), -kGateLimit);
  return kValueOffset == 0.0f ? clamped : add_rn(clamped, kValueOffset);
}

// x above the threshold, else zero; NaN stays.
template <>
JITNORM_FORCE_INLINE float activated<Activation::kFatRelu>(float x) {
  return x <= kThreshold ? 0.0f : x;
}
#endif
