// E2M1, eight codes a word, the first in the lowest nibble: to and from float. Encoding rounds to nearest even,
// saturates at 6 and makes +6 (code 7) of NaN; -0 is kept.
//
// Without the instruction: as a function of the magnitude m, the code of a value that has one lies on the lowest of
// three lines: 2m up to 2, m + 2 up to 4, m / 2 + 4 above. Added to a float whose last place counts codes, a line is
// rounded to a whole code, a tie to the even one, in the one rounding of the addition; rounding keeps the order, so the
// lowest stays the lowest. One addition serves two lines: m + (2^23 - 2) reaches 2^23, from which floats are 1 apart
// and not 1/2, where m is 2.
#pragma once

#include "configuration.h"
#include "intrinsics.h"

constexpr int kE2M1PerWord = 8;
constexpr UInt32 kCodeZero = 0x4afffffcu;  // the bits of 2^23 - 2; each code is one more
constexpr float kUnsaturatedBound = 7.0f;  // magnitudes below this need no saturation

// kCodeZero + the code.
template <bool kIsBounded>
JITNORM_INLINE UInt32 lower_line(float below_4, float above_4) {
  return bits_of(min_or_limit(below_4, kIsBounded ? above_4 : min_or_limit(above_4, 0x1p23f + 3.0f)));
}

template <bool kIsBounded>
JITNORM_INLINE UInt32 magnitude_code(float m) {
  return lower_line<kIsBounded>(add_rn(m, 0x1p23f - 2.0f), fma_rn(m, 0.5f, 0x1p23f));
}

// The same for m * factor. With a power of two the product needs no rounding of its own: it is exact, or far from where
// codes change. That saves one instruction of 16.6 an element of RMSNorm + MXFP4.
template <bool kIsBounded>
JITNORM_INLINE UInt32 scaled_code(float m, float factor) {
  if constexpr (!kPowerOfTwoScales) return magnitude_code<kIsBounded>(mul_rn(m, factor));
  return lower_line<kIsBounded>(fma_rn(m, factor, 0x1p23f - 2.0f), fma_rn(m, mul_rn(factor, 0.5f), 0x1p23f));
}

// A word of codes that come with kCodeZero, which is taken off as a whole.
JITNORM_INLINE UInt32 pack_codes(const UInt32 (&codes)[kE2M1PerWord]) {
  UInt32 word = 0;
  JITNORM_UNROLL
  for (int i = kE2M1PerWord - 1; i >= 0; --i) word = word * 16u + codes[i];
  return word - kCodeZero * 0x11111111u;
}

// The signs of eight codes, where they belong in their word.
JITNORM_INLINE UInt32 signs_of(const float* y) {
  UInt32 signs = 0;
  JITNORM_UNROLL
  for (int i = kE2M1PerWord - 1; i >= 0; --i) signs = append_top_bits(signs, bits_of(with_positive_nan(y[i])));
  return signs & 0x88888888u;
}

// A word of the codes of y * factor; the factor is not negative. With kIsBounded, the products' magnitudes are known to
// be below kUnsaturatedBound; else one may be NaN, infinity times zero.
template <bool kIsBounded>
JITNORM_INLINE UInt32 exact_e2m1(const float* y, float factor) {
  UInt32 codes[kE2M1PerWord];
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1PerWord; ++i) codes[i] = scaled_code<kIsBounded>(magnitude_of(y[i]), factor);
  if (kIsBounded) return pack_codes(codes) | signs_of(y);
  float products[kE2M1PerWord];
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1PerWord; ++i) products[i] = mul_rn(y[i], factor);
  return pack_codes(codes) | signs_of(products);
}

template <bool kIsBounded>
JITNORM_INLINE UInt32 encode_e2m1(const float* y, float factor) {
  if constexpr (kHasNativeE2M1) {
    float products[kE2M1PerWord];
    JITNORM_UNROLL
    for (int i = 0; i < kE2M1PerWord; ++i) products[i] = mul_rn(y[i], factor);
    return convert_e2m1x8(products);
  } else {
    return exact_e2m1<kIsBounded>(y, factor);
  }
}

// The value of the code in the lowest four bits.
JITNORM_INLINE float decode_e2m1(UInt32 code) {
  // As the top bits of a float the exponent is 126 too small; the product also normalizes the denormal, exactly.
  return mul_rn(float_of(((code & 8u) << 28) | ((code & 7u) << 22)), 0x1p126f);
}
