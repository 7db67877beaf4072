// The arithmetic of the numerics on the GPU: one IEEE rounding each, never contracted.
#define JITNORM_INLINE __device__ __forceinline__
#define JITNORM_UNROLL _Pragma("unroll")

constexpr UInt32 kFullWarp = 0xffffffffu;

JITNORM_INLINE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
JITNORM_INLINE float add_rn(float a, float b) { return __fadd_rn(a, b); }
JITNORM_INLINE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
JITNORM_INLINE float div_rn(float a, float b) { return __fdiv_rn(a, b); }

// 1 / a where both are normal, else 0 or NaN: the steps of __frcp_rn without its look at the exponent. The instruction
// is off by less than an ulp, for which one of Newton's steps makes up.
JITNORM_INLINE float quick_reciprocal(float a) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return __fmaf_rn(r, __fmaf_rn(-a, r, 1.0f), r);
}

JITNORM_INLINE float reciprocal_rn(float a) { return __frcp_rn(a); }
JITNORM_INLINE float sqrt_rn(float a) { return __fsqrt_rn(a); }
JITNORM_INLINE UInt32 bits_of(float a) { return __float_as_uint(a); }
JITNORM_INLINE float float_of(UInt32 bits) { return __uint_as_float(bits); }

JITNORM_INLINE float magnitude_of(float a) { return fabsf(a); }

// The word moved up by four bits, and the top four of others below. In assembly it is one instruction; the compiler
// makes more of some.
JITNORM_INLINE UInt32 append_top_bits(UInt32 word, UInt32 others) {
  UInt32 result;
  asm("shf.l.wrap.b32 %0, %1, %2, 4;" : "=r"(result) : "r"(others), "r"(word));
  return result;
}

// a, computed no later than here: the compiler would do it where it is used, behind a barrier that others wait for.
JITNORM_INLINE float computed(float a) {
  asm volatile("" : "+f"(a));
  return a;
}

// a, of which the compiler knows nothing: it need not be kept from this one.
JITNORM_INLINE float opaque(float a) { return a; }

// The larger magnitude of a >= 0 and v; NaN if either is. In assembly the magnitude costs nothing; outside, the
// compiler may make of it another mask of a value that it unpacks.
JITNORM_INLINE float max_magnitude(float a, float v) {
  float result;
  asm("{\n.reg .f32 m;\nabs.f32 m, %2;\nmax.NaN.f32 %0, %1, m;\n}" : "=f"(result) : "f"(a), "f"(v));
  return result;
}

// a, but at most `limit`; limit if a is NaN.
JITNORM_INLINE float min_or_limit(float a, float limit) { return fminf(a, limit); }

// a, but at least `limit`; NaN stays.
JITNORM_INLINE float max_or_nan(float a, float limit) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(limit));
  return result;
}

// The GPU's arithmetic gives every NaN as 0x7fffffff already; a NaN that was only loaded may be another.
JITNORM_INLINE float with_positive_nan(float a) { return a; }
JITNORM_INLINE float with_canonical_nan(float a) { return a != a ? __uint_as_float(0x7fffffffu) : a; }
