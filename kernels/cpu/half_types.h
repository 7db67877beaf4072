// 16-bit floats on the host, branch-free so that the compiler can vectorize them. The conversions round to nearest
// even and write every NaN as 0x7fff; bits are kept in words, as GCC does not vectorize choices between narrower ones.
JITNORM_INLINE float to_float(BFloat16 x) { return float_of((UInt32)x.bits << 16); }

JITNORM_INLINE float to_float(Float16 x) {
  const UInt32 sign = (UInt32)(x.bits & 0x8000u) << 16;
  const UInt32 magnitude = (UInt32)(x.bits & 0x7fffu) << 13;
  // 2^112 moves the exponent bias from 15 to 127 and normalizes denormals, all exactly.
  const UInt32 finite = bits_of(mul_rn(float_of(magnitude), 0x1p112f));
  return float_of(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

JITNORM_INLINE float to_float(float x) { return x; }

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
