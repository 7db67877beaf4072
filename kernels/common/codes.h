// Codes of the configuration's element format, in words, the first code in the lowest bits.
#pragma once

#include "e2m1.h"
#include "fp8.h"

constexpr int kCodeBits = kElement == Element::kE2M1 ? 4 : 8;
constexpr int kCodesPerWord = 32 / kCodeBits;
constexpr UInt32 kNaNCodes = kElement == Element::kE2M1 ? 0x77777777u : 0x7f7f7f7fu;

JITNORM_INLINE UInt32 encode_fp8(float y, float factor) {
  const float product = mul_rn(y, factor);
  return kElement == Element::kE5M2 ? encode_e5m2(product) : encode_e4m3(product);
}

// A word of the codes of y * factor. With kIsBounded, the products of E2M1 are known to need no saturation.
template <bool kIsBounded = false>
JITNORM_INLINE UInt32 encode_word(const float* y, float factor) {
  if constexpr (kElement == Element::kE2M1) {
    return encode_e2m1<kIsBounded>(y, factor);
  } else if constexpr (kHasNativeFp8) {
    const float v0 = mul_rn(y[0], factor), v1 = mul_rn(y[1], factor);
    const float v2 = mul_rn(y[2], factor), v3 = mul_rn(y[3], factor);
    if constexpr (kElement == Element::kE5M2) return convert_e5m2x2(v0, v1) | convert_e5m2x2(v2, v3) << 16;
    return convert_e4m3x2(v0, v1) | convert_e4m3x2(v2, v3) << 16;
  } else {
    return encode_fp8(y[0], factor) | encode_fp8(y[1], factor) << 8 | encode_fp8(y[2], factor) << 16 |
           encode_fp8(y[3], factor) << 24;
  }
}

// The value of the code in the lowest bits.
JITNORM_INLINE float value_of_code(UInt32 code) {
  if constexpr (kElement == Element::kE2M1) return decode_e2m1(code);
  if constexpr (kElement == Element::kE5M2) return decode_e5m2(code);
  return to_float(Float8E4M3{(UInt8)code});
}
