// The arithmetic of the numerics on the host: one IEEE rounding each; built with -ffp-contract=off. Conversions round
// to nearest even. Without branches, so that the compiler can vectorize them.
#pragma once

#include "../common/types.h"

// Members, and specializations of functions, cannot be declared static.
#define JITNORM_FORCE_INLINE inline __attribute__((always_inline))
#define JITNORM_INLINE static JITNORM_FORCE_INLINE
#define JITNORM_UNROLL _Pragma("GCC unroll 16")
// Before a loop over lanes: makes GCC vectorize it instead of unrolling it first (NVFP4: 23 ms to 14).
#define JITNORM_LANES _Pragma("GCC unroll 1")

constexpr bool kDivisionsBranch = false;
constexpr bool kDenormalsAreSlow = true;

JITNORM_INLINE float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
JITNORM_INLINE float add_rn(float a, float b) { return a + b; }
JITNORM_INLINE float mul_rn(float a, float b) { return a * b; }
JITNORM_INLINE float div_rn(float a, float b) { return a / b; }
JITNORM_INLINE float reciprocal_rn(float a) { return 1.0f / a; }
JITNORM_INLINE float fast_reciprocal(float a) { return 1.0f / a; }
JITNORM_INLINE float sqrt_rn(float a) { return __builtin_sqrtf(a); }
JITNORM_INLINE float computed(float a) { return a; }

JITNORM_INLINE UInt32 bits_of(float a) {
  UInt32 bits;
  __builtin_memcpy(&bits, &a, sizeof(bits));
  return bits;
}

JITNORM_INLINE float float_of(UInt32 bits) {
  float a;
  __builtin_memcpy(&a, &bits, sizeof(a));
  return a;
}

JITNORM_INLINE float magnitude_of(float a) { return float_of(bits_of(a) & 0x7fffffffu); }

// The word shifted up by four bits, with the top four bits of another below.
JITNORM_INLINE UInt32 append_top_bits(UInt32 word, UInt32 others) { return (word << 4) | (others >> 28); }

// a, hidden from the compiler.
JITNORM_INLINE float opaque(float a) {
  asm("" : "+m"(a));
  return a;
}

JITNORM_INLINE UInt32 concealed(UInt32 a) { return a; }

// The larger magnitude of a >= 0 and v; NaN if either is: as integers, NaN lies above infinity.
JITNORM_INLINE float max_magnitude(float a, float v) {
  const UInt32 x = bits_of(a), y = bits_of(v) & 0x7fffffffu;
  return float_of(x > y ? x : y);
}

// a, but at most `limit`; limit if a is NaN.
JITNORM_INLINE float min_or_limit(float a, float limit) { return a < limit ? a : limit; }

// a, but at least `limit`; limit if a is NaN.
JITNORM_INLINE float max_or_limit(float a, float limit) { return a > limit ? a : limit; }

// a, but at least `limit`; NaN stays.
JITNORM_INLINE float max_or_nan(float a, float limit) { return a < limit ? limit : a; }

// x86 gives the NaNs that it creates a sign, the GPU does not.
JITNORM_INLINE float with_positive_nan(float a) { return a != a ? float_of(0x7fffffffu) : a; }
JITNORM_INLINE float with_canonical_nan(float a) { return with_positive_nan(a); }

JITNORM_INLINE float to_float(BFloat16 x) { return float_of((UInt32)x.bits << 16); }

JITNORM_INLINE float to_float(Float16 x) {
  const UInt32 sign = (UInt32)(x.bits & 0x8000u) << 16;
  const UInt32 magnitude = (UInt32)(x.bits & 0x7fffu) << 13;
  // 2^112 moves the exponent bias from 15 to 127 and normalizes denormals, all exactly.
  const UInt32 finite = bits_of(mul_rn(float_of(magnitude), 0x1p112f));
  return float_of(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

JITNORM_INLINE float to_float(float x) { return x; }

// Every NaN becomes 0x7fff, or 0x7fffffff. In words, because GCC does not vectorize selections between narrower types.
JITNORM_INLINE UInt32 rounded_bits(float x, BFloat16) {
  const UInt32 bits = bits_of(x);
  const UInt32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return x != x ? 0x7fffu : rounded;
}

JITNORM_INLINE UInt32 rounded_bits(float x, Float16) {
  const UInt32 sign = (bits_of(x) >> 16) & 0x8000u;
  const UInt32 magnitude = bits_of(x) & 0x7fffffffu;
  // An ulp of 0.5 is a denormal float16's step, so the addition rounds at the right place.
  const UInt32 denormal = bits_of(add_rn(float_of(magnitude), 0.5f)) - 0x3f000000u;
  const UInt32 normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const UInt32 finite = magnitude < 0x38800000u ? denormal : normal;
  const UInt32 rounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;
  return magnitude > 0x7f800000u ? 0x7fffu : sign | rounded;
}

JITNORM_INLINE UInt32 rounded_bits(float x, float) { return bits_of(with_canonical_nan(x)); }

JITNORM_INLINE void round_to(float x, BFloat16& result) { result.bits = (UInt16)rounded_bits(x, result); }
JITNORM_INLINE void round_to(float x, Float16& result) { result.bits = (UInt16)rounded_bits(x, result); }
JITNORM_INLINE void round_to(float x, float& result) { result = with_canonical_nan(x); }

// The host lacks these instructions; kHasNativeFp8, kHasNativeE2M1, kTakesFastPath and kDivisionsBranch say so, and
// nothing calls them.
float max_or_limit(float a, float limit);
float approximate_reciprocal(float a);
float approximate_reciprocal_root(float a);
float fma_ru(float a, float b, float c);
UInt32 convert_e4m3x2(float low, float high);
UInt32 convert_e5m2x2(float low, float high);
UInt32 widen_e4m3x2(UInt32 codes);
UInt32 convert_e2m1x8(const float (&v)[8]);

// A code of INT8: saturating, NaN to 0. From 2^23 on, floats are whole: the addition rounds at the right place.
JITNORM_INLINE UInt32 int8_code(float v) {
  const float bounded = v < -128.0f ? -128.0f : v > 127.0f ? 127.0f : v;
  return v == v ? bits_of(add_rn(bounded, 0x1.8p23f)) & 0xffu : 0u;
}

// Four of them, the first in the lowest byte.
JITNORM_INLINE UInt32 convert_int8x4(float v0, float v1, float v2, float v3) {
  return int8_code(v0) | int8_code(v1) << 8 | int8_code(v2) << 16 | int8_code(v3) << 24;
}
