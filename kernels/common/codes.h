// Codes of E2M1, eight per word, and of E4M3, E5M2 and INT8, four per word, the first in the lowest bits: to and from
// float. Encoding rounds to nearest even and saturates at the largest code; NaN becomes the largest positive code in
// E2M1, 0x7f in FP8 and 0 in INT8, and -0 is kept if the format has it. It uses the instruction if the target has one,
// and otherwise gives exactly the same results. There are no branches, so that the host's compiler can vectorize it.
#pragma once

#include "configuration.h"
#include "intrinsics.h"
#include "packed.h"

constexpr int kCodeBits = kElement == Element::kE2M1 ? 4 : 8;
constexpr int kCodesPerWord = 32 / kCodeBits;
constexpr UInt32 kNaNCodes = kElement == Element::kInt8 ? 0u : kElement == Element::kE2M1 ? 0x77777777u : 0x7f7f7f7fu;

JITNORM_INLINE UInt32 exact_e4m3(float v) {
  const UInt32 bits = bits_of(v);
  const UInt32 magnitude = bits & 0x7fffffffu;
  const UInt32 normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - (120u << 23)) >> 20;
  // Below 2^-6 codes are 2^-9 apart, the last place of 2^14.
  const UInt32 denormal = bits_of(add_rn(float_of(magnitude), 0x1p14f)) & 0xfu;
  const UInt32 finite = magnitude < 0x3c800000u ? denormal : normal;
  const UInt32 saturated = magnitude < 0x43e00000u ? finite : 0x7eu;  // 448 and above
  return magnitude > 0x7f800000u ? 0x7fu : saturated | ((bits >> 24) & 0x80u);
}

JITNORM_INLINE UInt32 exact_e5m2(float v) {
  const UInt32 bits = bits_of(v);
  const UInt32 magnitude = bits & 0x7fffffffu;
  const UInt32 normal = (magnitude + 0xfffffu + ((magnitude >> 21) & 1u) - (112u << 23)) >> 21;
  // Below 2^-14 codes are 2^-16 apart, the last place of 2^7.
  const UInt32 denormal = bits_of(add_rn(float_of(magnitude), 0x1p7f)) & 0x7u;
  const UInt32 finite = magnitude < 0x38800000u ? denormal : normal;
  const UInt32 saturated = magnitude < 0x47600000u ? finite : 0x7bu;  // 57344 and above
  return magnitude > 0x7f800000u ? 0x7fu : saturated | ((bits >> 24) & 0x80u);
}

JITNORM_INLINE UInt32 encode_e4m3(float v) {
  if constexpr (kHasNativeFp8) return convert_e4m3x2(v, 0.0f);
  return exact_e4m3(v);
}

JITNORM_INLINE UInt32 encode_e5m2(float v) {
  if constexpr (kHasNativeFp8) return convert_e5m2x2(v, 0.0f);
  return exact_e5m2(v);
}

// The value of a code of `kBits` below its sign, with an exponent that is `kBias` less than a float's. As the top bits
// of a float it is that much too small, and below `kFirst` denormal: a product normalizes it, exactly. Where that is
// slow, kBias is added; what lacks its leading one then counts half of what it should, from the least normal value on.
template <int kBits, int kMantissaBits, UInt32 kBias>
JITNORM_INLINE float decode_float(UInt32 code) {
  constexpr UInt32 kMagnitudes = (1u << kBits) - 1, kFirst = 1u << kMantissaBits;
  const UInt32 sign = (code & (1u << kBits)) << (31 - kBits), magnitude = code & kMagnitudes;
  const UInt32 bits = magnitude << (23 - kMantissaBits);
  if constexpr (!kDenormalsAreSlow) return mul_rn(float_of(sign | bits), float_of((127 + kBias) << 23));
  const float biased = float_of(bits + (kBias << 23));
  const float denormal = add_rn(mul_rn(biased, 2.0f), -float_of((kBias + 1) << 23));
  return float_of(bits_of(magnitude < kFirst ? denormal : biased) | sign);
}

// The value of an E4M3 code that is not NaN.
JITNORM_INLINE float decode_e4m3(UInt32 code) {
  if constexpr (kHasNativeFp8) return to_float(Float16{(UInt16)widen_e4m3x2(code)});
  return decode_float<7, 3, 120>(code);
}

// The value of any code, which a float holds exactly.
JITNORM_INLINE float value_of_e4m3(UInt32 code) {
  if constexpr (kHasNativeFp8) return decode_e4m3(code);
  return float_of((code & 0x7fu) == 0x7fu ? 0x7fffffffu : bits_of(decode_e4m3(code)));
}

JITNORM_INLINE float to_float(Float8E4M3 x) { return value_of_e4m3(x.bits); }

JITNORM_INLINE UInt32 encode_fp8(float y, float factor) {
  const float product = mul_rn(y, factor);
  return kElement == Element::kE5M2 ? encode_e5m2(product) : encode_e4m3(product);
}

// E2M1 without the instruction: as a function of the magnitude m, the code of a value that has one lies on the lowest
// of three lines: 2m up to 2, m + 2 up to 4, m / 2 + 4 above. Added to a float whose last place counts codes, a line is
// rounded to a whole code, a tie to the even one, in the one rounding of the addition; rounding keeps the order, so the
// lowest stays the lowest. One addition serves two lines: m + (2^23 - 2) reaches 2^23, from which floats are 1 apart
// and not 1/2, where m is 2.
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

// A word of codes that include kCodeZero, which is subtracted from the whole word.
JITNORM_INLINE UInt32 pack_codes(const UInt32 (&codes)[kE2M1PerWord]) {
  UInt32 word = 0;
  JITNORM_UNROLL
  for (int i = kE2M1PerWord - 1; i >= 0; --i) word = word * 16u + codes[i];
  return word - kCodeZero * 0x11111111u;
}

// The signs of eight codes, at their places in the word.
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

// Floats from 2^22, 2^23 and 2^24 on are 1/2, 1 and 2 apart, like the values of E2M1 from 0, 2 and 4 on. Therefore, m *
// 2^22 - m is rounded where m should be, and below 1.5, 1.5 * 2^22 - m is: both products are multiples of what values
// are apart, even ones if m is a tie. Just above 2 and 4, the difference is below 2^23 and 2^24, where floats are
// closer, but m is rounded to 2 and 4 there, too.
constexpr float kHalvesFrom = 0x1p22f, kLeastFactor = 1.5f;

// A magnitude below 7 rounded to a value of E2M1, both times a unit.
template <typename Floats>
JITNORM_INLINE Floats rounded_to_e2m1(Floats m, float unit) {
  const Floats large = max_or_limit(m, kLeastFactor * unit);
  return fma_rn(large, kHalvesFrom, -fma_rn(large, kHalvesFrom, -m));
}

// The value of the code in the lowest four bits.
JITNORM_INLINE float decode_e2m1(UInt32 code) { return decode_float<3, 1, 126>(code); }

// A word of the codes of y * factor, in FP8.
template <Element kFormat>
JITNORM_INLINE UInt32 encode_word(const float* y, float factor) {
  if constexpr (kHasNativeFp8) {
    float v[4];
    multiply(v, y, factor);
    if constexpr (kFormat == Element::kE5M2) return convert_e5m2x2(v[0], v[1]) | convert_e5m2x2(v[2], v[3]) << 16;
    return convert_e4m3x2(v[0], v[1]) | convert_e4m3x2(v[2], v[3]) << 16;
  }
  return encode_fp8(y[0], factor) | encode_fp8(y[1], factor) << 8 | encode_fp8(y[2], factor) << 16 |
         encode_fp8(y[3], factor) << 24;
}

template <>
JITNORM_FORCE_INLINE UInt32 encode_word<Element::kE2M1>(const float* y, float factor) {
  if constexpr (!kHasNativeE2M1) return exact_e2m1<false>(y, factor);
  float products[kE2M1PerWord];
  multiply(products, y, factor);
  return convert_e2m1x8(products);
}

template <>
JITNORM_FORCE_INLINE UInt32 encode_word<Element::kInt8>(const float* y, float factor) {
  float v[4];
  multiply(v, y, factor);
  return convert_int8x4(v[0], v[1], v[2], v[3]);
}

// The value of the code in the lowest bits.
template <Element>
JITNORM_INLINE float value_of_code(UInt32 code);

template <>
JITNORM_FORCE_INLINE float value_of_code<Element::kE2M1>(UInt32 code) {
  return decode_e2m1(code);
}

template <>
JITNORM_FORCE_INLINE float value_of_code<Element::kE4M3>(UInt32 code) {
  return value_of_e4m3(code);
}

template <>
JITNORM_FORCE_INLINE float value_of_code<Element::kE5M2>(UInt32 code) {
  return to_float(Float16{(UInt16)(code << 8)});  // the upper byte of a float16
}

template <>
JITNORM_FORCE_INLINE float value_of_code<Element::kInt8>(UInt32 code) {
  return (float)((Int32)(code << 24) >> 24);
}
