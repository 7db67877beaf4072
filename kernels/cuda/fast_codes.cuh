// E2M1 codes without their instruction, by the conversion to E4M3: a value is rounded as a float, which converts
// exactly. Times 2^-6, it has the same exponent field in both formats, so that its byte is the sign and four times the
// code. Tested with all floats.
#pragma once

#include "../common/codes.h"

constexpr float kE2M1Unit = kHasNativeE2M1 ? 1.0f : 0x1p-6f, kFastUnit = kE2M1Unit * kHalvesFrom;

// Eight floats in E4M3, those with even and those with odd numbers, four a word.
struct E4M3Bytes {
  UInt32 even, odd;

  JITNORM_INLINE static E4M3Bytes of(const float* v) {
    return {convert_e4m3x2(v[0], v[2]) | convert_e4m3x2(v[4], v[6]) << 16,
            convert_e4m3x2(v[1], v[3]) | convert_e4m3x2(v[5], v[7]) << 16};
  }
};

// The codes of eight magnitudes that are values of E2M1, times kE2M1Unit.
JITNORM_INLINE UInt32 codes_of_values(const float* values) {
  if constexpr (kHasNativeFp8) {
    const E4M3Bytes bytes = E4M3Bytes::of(values);
    return (bytes.even >> 2) + (bytes.odd << 2);
  }
  UInt32 pairs[kE2M1PerWord / 2];  // in float16, times 2^-14: the code begins at bit 9
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1PerWord / 2; ++i) {
    pairs[i] = convert_f16x2(mul_rn(values[i], 0x1p-14f / kE2M1Unit), mul_rn(values[i + 4], 0x1p-14f / kE2M1Unit));
  }
  return ((pairs[0] + pairs[1] * 16u) >> 9) + ((pairs[2] + pairs[3] * 16u) >> 1);
}

// The signs of eight codes, at their places in the word, of values that are not NaN.
JITNORM_INLINE UInt32 fast_signs_of(const float* y) {
  if constexpr (!kHasNativeFp8) return signs_of(y);
  const E4M3Bytes bytes = E4M3Bytes::of(y);
  return select_bits(0x0f0f0f0fu, bytes.even >> 4, bytes.odd) & 0x88888888u;
}

// A word of the codes of y * factor / kFastUnit, whose magnitudes are below 7.
JITNORM_INLINE UInt32 fast_e2m1(const float* y, float factor) {
  float values[kE2M1PerWord];
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1PerWord; ++i) {
    const float product = mul_rn(y[i], factor);
    const float large = max_with_sign(product, kLeastFactor * kFastUnit);
    const float rest = fma_rn(product, -1.0f / kHalvesFrom, large);
    // Not `large - rest`, which would lose the sign of zero: this has a larger magnitude, by rest / 2^24, and changes
    // the lowest two bits of the byte at most.
    values[i] = fma_rn(rest, -0x0.ffffffp0f, large);
  }
  const E4M3Bytes bytes = E4M3Bytes::of(values);
  const UInt32 even = select_bits(0x07070707u, bytes.even >> 2, bytes.even >> 4);
  const UInt32 odd = select_bits(0x70707070u, bytes.odd << 2, bytes.odd);
  return select_bits(0x0f0f0f0fu, even, odd);
}

// The same of y * factor, of any magnitude.
JITNORM_INLINE UInt32 bounded_e2m1(const float* y, float factor) {
  float products[kE2M1PerWord];
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1PerWord; ++i) products[i] = min_with_sign(mul_rn(y[i], factor), 6.0f);
  return fast_e2m1(products, kFastUnit);
}
