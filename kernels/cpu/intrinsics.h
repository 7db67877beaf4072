// The arithmetic of the numerics on the host: one IEEE rounding each; built with -ffp-contract=off.
#define JITNORM_INLINE static inline __attribute__((always_inline))
#define JITNORM_UNROLL _Pragma("GCC unroll 16")
// Before a loop over lanes: GCC is to make vectors of it, not to unroll it first (NVFP4: 23 ms to 14).
#define JITNORM_LANES _Pragma("GCC unroll 1")

JITNORM_INLINE float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
JITNORM_INLINE float add_rn(float a, float b) { return a + b; }
JITNORM_INLINE float mul_rn(float a, float b) { return a * b; }
JITNORM_INLINE float div_rn(float a, float b) { return a / b; }
JITNORM_INLINE float reciprocal_rn(float a) { return 1.0f / a; }
JITNORM_INLINE float computed(float a) { return a; }
JITNORM_INLINE float sqrt_rn(float a) { return __builtin_sqrtf(a); }

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

// The word moved up by four bits, and the top four of others below.
JITNORM_INLINE UInt32 append_top_bits(UInt32 word, UInt32 others) { return (word << 4) | (others >> 28); }

// a, of which the compiler knows nothing.
JITNORM_INLINE float opaque(float a) {
  asm("" : "+m"(a));
  return a;
}

// The larger magnitude of a >= 0 and v; NaN if either is: as integers, NaN lies above infinity.
JITNORM_INLINE float max_magnitude(float a, float v) {
  const UInt32 x = bits_of(a), y = bits_of(v) & 0x7fffffffu;
  return float_of(x > y ? x : y);
}

// a, but at most `limit`; limit if a is NaN.
JITNORM_INLINE float min_or_limit(float a, float limit) { return a < limit ? a : limit; }

// a, but at least `limit`; NaN stays.
JITNORM_INLINE float max_or_nan(float a, float limit) { return a < limit ? limit : a; }

// x86 gives its own NaNs a sign, the GPU does not.
JITNORM_INLINE float with_positive_nan(float a) { return a != a ? float_of(0x7fffffffu) : a; }
JITNORM_INLINE float with_canonical_nan(float a) { return with_positive_nan(a); }
