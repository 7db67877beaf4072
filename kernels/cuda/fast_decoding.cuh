// The values of a word's codes, the first in the lowest bits: by pairs of float16, which hold them exactly.
#pragma once

#include "../common/codes.h"

JITNORM_INLINE void widen(UInt32 pair, float& first, float& second) {
  first = to_float(Float16{(UInt16)pair});
  second = to_float(Float16{(UInt16)(pair >> 16)});
}

template <Element>
JITNORM_INLINE void decode_word(UInt32 word, float* values);

template <>
JITNORM_FORCE_INLINE void decode_word<Element::kE4M3>(UInt32 word, float* values) {
  if constexpr (kHasNativeFp8) {
    widen(widen_e4m3x2(word), values[0], values[1]);
    widen(widen_e4m3x2(word >> 16), values[2], values[3]);
  } else {
    JITNORM_UNROLL
    for (int i = 0; i < 4; ++i) values[i] = value_of_code<Element::kE4M3>(word >> (8 * i));
  }
}

template <>
JITNORM_FORCE_INLINE void decode_word<Element::kE5M2>(UInt32 word, float* values) {
  widen(__byte_perm(word, 0, 0x1404), values[0], values[1]);  // the upper bytes of two float16
  widen(__byte_perm(word, 0, 0x3424), values[2], values[3]);
}

template <>
JITNORM_FORCE_INLINE void decode_word<Element::kE2M1>(UInt32 word, float* values) {
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const UInt32 at_top = word << (12 - 4 * i);  // codes i and i + 4, of halves
    // As the top bits of a float16 the exponent is 14 too small; the product also normalizes the denormal, exactly.
    const UInt32 pair = (at_top & 0x80008000u) | (at_top >> 3 & 0x0e000e00u);
    widen(multiply_f16x2(pair, 0x74007400u), values[i], values[i + 4]);
  }
}

template <>
JITNORM_FORCE_INLINE void decode_word<Element::kInt8>(UInt32 word, float* values) {
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) values[i] = value_of_code<Element::kInt8>(word >> (8 * i));
}
