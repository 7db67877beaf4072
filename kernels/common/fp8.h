// E4M3 and E5M2, one code a byte: to and from float. Encoding rounds to nearest even, saturates at the largest code,
// makes 0x7f of NaN and keeps -0, by the instruction where the target has it, else exactly as that does. Without
// branches, so that the host's compiler can vectorize it.
#pragma once

#include "configuration.h"
#include "intrinsics.h"

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

// The value of an E4M3 code that is no NaN.
JITNORM_INLINE float decode_e4m3(UInt32 code) {
  // As the top bits of a float the exponent is 120 too small; the product also normalizes denormals, exactly.
  return mul_rn(float_of(((code & 0x80u) << 24) | ((code & 0x7fu) << 20)), 0x1p120f);
}

// Of any, which a float holds exactly.
JITNORM_INLINE float to_float(Float8E4M3 x) {
  return (x.bits & 0x7fu) == 0x7fu ? float_of(0x7fffffffu) : decode_e4m3(x.bits);
}

// E5M2 is the upper byte of float16.
JITNORM_INLINE float decode_e5m2(UInt32 code) { return to_float(Float16{(UInt16)(code << 8)}); }
