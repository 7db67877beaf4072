// The arithmetic of the numerics on the GPU: one IEEE rounding each, never contracted. Conversions round to nearest
// even. At the end, programmatic dependent launch.
#pragma once

#include "../common/configuration.h"

#define JITNORM_FORCE_INLINE __device__ __forceinline__
#define JITNORM_INLINE JITNORM_FORCE_INLINE
#define JITNORM_UNROLL _Pragma("unroll")
// Before a loop that the host computes as vectors.
#define JITNORM_LANES JITNORM_UNROLL

constexpr UInt32 kFullWarp = 0xffffffffu;
// Whether divisions look at exponents, and branch.
constexpr bool kDivisionsBranch = true;
// Whether arithmetic takes many times as long with denormals.
constexpr bool kDenormalsAreSlow = false;

// Whether something holds for all lanes of the warp: a choice by it sends none of them through both branches. Asked
// whether it fails for any, ptxas places what usually holds first: gated norms to NVFP4 take 1.00 of the time,
// not 1.025.
JITNORM_INLINE bool holds_for_warp(bool each) { return !__any_sync(kFullWarp, !each); }

JITNORM_INLINE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Rounded up.
JITNORM_INLINE float fma_ru(float a, float b, float c) { return __fmaf_ru(a, b, c); }
JITNORM_INLINE float add_rn(float a, float b) { return __fadd_rn(a, b); }
JITNORM_INLINE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
JITNORM_INLINE float div_rn(float a, float b) { return __fdiv_rn(a, b); }
JITNORM_INLINE float reciprocal_rn(float a) { return __frcp_rn(a); }
JITNORM_INLINE float sqrt_rn(float a) { return __fsqrt_rn(a); }
JITNORM_INLINE UInt32 bits_of(float a) { return __float_as_uint(a); }
JITNORM_INLINE float float_of(UInt32 bits) { return __uint_as_float(bits); }

JITNORM_INLINE float magnitude_of(float a) { return fabsf(a); }

// Off by less than an ulp; denormals count as zero.
JITNORM_INLINE float approximate_reciprocal(float a) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}

// 1 / a where both are normal, else 0 or NaN: the steps of __frcp_rn without its look at the exponent. The instruction
// is off by less than an ulp, for which one of Newton's steps makes up.
template <typename Floats>
JITNORM_INLINE Floats fast_reciprocal(Floats a) {
  const Floats r = approximate_reciprocal(a);
  return fma_rn(r, fma_rn(-a, r, 1.0f), r);
}

// 2^a, off by 2 ulp at most; 1 for zero, which denormals count as.
JITNORM_INLINE float approximate_power_of_two(float a) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}

// Off by 2^-22; denormals count as zero.
JITNORM_INLINE float approximate_reciprocal_root(float a) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}

// The word shifted up by four bits, with the top four bits of another below. In assembly it is one instruction; the
// compiler sometimes uses more.
JITNORM_INLINE UInt32 append_top_bits(UInt32 word, UInt32 others) {
  UInt32 result;
  asm("shf.l.wrap.b32 %0, %1, %2, 4;" : "=r"(result) : "r"(others), "r"(word));
  return result;
}

// The bits of a where the mask has ones, of b elsewhere. In assembly it is one instruction; the compiler uses two.
JITNORM_INLINE UInt32 select_bits(UInt32 mask, UInt32 a, UInt32 b) {
  UInt32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(mask), "r"(a), "r"(b));
  return result;
}

// a, computed no later than here: the compiler would compute it where it is used, after a barrier that others wait for.
JITNORM_INLINE float computed(float a) {
  asm volatile("" : "+f"(a));
  return a;
}

// a: nothing needs to be hidden from this compiler.
JITNORM_INLINE float opaque(float a) { return a; }

// a, without the compiler's knowledge of how it was computed.
JITNORM_INLINE UInt32 concealed(UInt32 a) {
  asm("" : "+r"(a));
  return a;
}

// The larger magnitude of a >= 0 and v; NaN if either is. In assembly the magnitude is free; otherwise, the compiler
// may turn it into another mask of a value that it unpacks.
JITNORM_INLINE float max_magnitude(float a, float v) {
  float result;
  asm("{\n.reg .f32 m;\nabs.f32 m, %2;\nmax.NaN.f32 %0, %1, m;\n}" : "=f"(result) : "f"(a), "f"(v));
  return result;
}

// The smaller magnitude; NaN if either is.
JITNORM_INLINE float min_magnitude(float a, float v) {
  float result;
  asm("{\n.reg .f32 m;\nabs.f32 m, %2;\nmin.NaN.f32 %0, %1, m;\n}" : "=f"(result) : "f"(a), "f"(v));
  return result;
}

// The larger magnitude of a and a positive b, with the sign of a (compute capability 8.6 and later).
JITNORM_INLINE float max_with_sign(float a, float b) {
  float result;
  asm("max.xorsign.abs.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// The smaller magnitude, likewise.
JITNORM_INLINE float min_with_sign(float a, float b) {
  float result;
  asm("min.xorsign.abs.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// a, but at most `limit`; limit if a is NaN.
JITNORM_INLINE float min_or_limit(float a, float limit) { return fminf(a, limit); }

// a, but at least `limit`; limit if a is NaN.
JITNORM_INLINE float max_or_limit(float a, float limit) { return fmaxf(a, limit); }

// a, but at least `limit`; NaN stays.
JITNORM_INLINE float max_or_nan(float a, float limit) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(limit));
  return result;
}

// The GPU's arithmetic always gives NaN as 0x7fffffff; a NaN that was only loaded may differ.
JITNORM_INLINE float with_positive_nan(float a) { return a; }
JITNORM_INLINE float with_canonical_nan(float a) { return a != a ? __uint_as_float(0x7fffffffu) : a; }

JITNORM_INLINE float to_float(BFloat16 x) { return float_of((UInt32)x.bits << 16); }

JITNORM_INLINE float to_float(Float16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

JITNORM_INLINE float to_float(float x) { return x; }

#ifdef JITNORM_MIXES_PRECISIONS
// a + b and a * a + b, where the instruction widens a.
JITNORM_INLINE float add_widened(BFloat16 a, float b) {
  asm("add.rn.f32.bf16 %0, %1, %0;" : "+f"(b) : "h"(a.bits));
  return b;
}

JITNORM_INLINE float add_widened(Float16 a, float b) {
  asm("add.rn.f32.f16 %0, %1, %0;" : "+f"(b) : "h"(a.bits));
  return b;
}

JITNORM_INLINE float add_square_widened(BFloat16 a, float b) {
  asm("fma.rn.f32.bf16 %0, %1, %1, %0;" : "+f"(b) : "h"(a.bits));
  return b;
}

JITNORM_INLINE float add_square_widened(Float16 a, float b) {
  asm("fma.rn.f32.f16 %0, %1, %1, %0;" : "+f"(b) : "h"(a.bits));
  return b;
}
#endif

// Every NaN becomes 0x7fff, or 0x7fffffff.
JITNORM_INLINE void round_to(float x, BFloat16& result) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x)); }

JITNORM_INLINE void round_to(float x, Float16& result) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x)); }

JITNORM_INLINE void round_to(float x, float& result) { result = with_canonical_nan(x); }

// Rounded to bfloat16, as a float: one instruction, where round_to and to_float take two, one of them in the XU pipe.
JITNORM_INLINE float rounded_to(float x, BFloat16) {
  UInt32 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, 0f00000000;" : "=r"(bits) : "f"(x));
  return float_of(bits);
}

// The products of two float16 each.
JITNORM_INLINE UInt32 multiply_f16x2(UInt32 a, UInt32 b) {
  UInt32 pair;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}

// Two float16, the first in the lower half.
JITNORM_INLINE UInt32 convert_f16x2(float low, float high) {
  UInt32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Two codes of FP8, the first in the lower byte: saturating, NaN to 0x7f (Ada and later).
JITNORM_INLINE UInt32 convert_e4m3x2(float low, float high) {
  UInt16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

JITNORM_INLINE UInt32 convert_e5m2x2(float low, float high) {
  UInt16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// Two codes of E4M3, the first in the lower byte, to two float16, the first in the lower half: exactly, NaN to 0x7fff
// (Ada and later).
JITNORM_INLINE UInt32 widen_e4m3x2(UInt32 codes) {
  UInt32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((UInt16)codes));
  return pair;
}

// Four codes of INT8, the first in the lowest byte: saturating, NaN to 0.
JITNORM_INLINE UInt32 convert_int8x4(float v0, float v1, float v2, float v3) {
  UInt32 codes;
  asm("{\n"
      ".reg .b32 upper;\n"
      "cvt.pack.sat.s8.s32.b32 upper, %4, %3, 0;\n"
      "cvt.pack.sat.s8.s32.b32 %0, %2, %1, upper;\n"
      "}"
      : "=r"(codes)
      : "r"(__float2int_rn(v0)), "r"(__float2int_rn(v1)), "r"(__float2int_rn(v2)), "r"(__float2int_rn(v3)));
  return codes;
}

// Eight codes of E2M1, the first in the lowest nibble: saturating, NaN to code 7 (Blackwell's targets of an
// architecture or a family).
JITNORM_INLINE UInt32 convert_e2m1x8(const float (&v)[8]) {
  UInt32 codes;
  asm("{\n"
      ".reg .b8 a, b, c, d;\n"
      "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 d, %8, %7;\n"
      "mov.b32 %0, {a, b, c, d};\n"
      "}"
      : "=r"(codes)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return codes;
}

// What one instruction loads or stores.
template <int kBytes>
struct Access;
template <>
struct Access<16> {
  typedef uint4 Type;
};
template <>
struct Access<8> {
  typedef uint2 Type;
};
template <>
struct Access<4> {
  typedef UInt32 Type;
};
template <>
struct Access<2> {
  typedef UInt16 Type;
};
template <>
struct Access<1> {
  typedef UInt8 Type;
};

// Between registers and memory that is aligned to the size. The access has a type because NVVM 13.0 does not always
// keep what it is told of an address: decoded rows of two leading dimensions were stored by eight bytes.
template <int kBytes>
JITNORM_INLINE void load_bytes(void* to, const void* from) {
  const typename Access<kBytes>::Type access = *static_cast<const typename Access<kBytes>::Type*>(from);
  memcpy(to, &access, kBytes);
}

template <int kBytes>
JITNORM_INLINE void store_bytes(void* to, const void* from) {
  typename Access<kBytes>::Type access;
  memcpy(&access, from, kBytes);
  *static_cast<typename Access<kBytes>::Type*>(to) = access;
}

// With programmatic dependent launch, a kernel may begin while the previous one still runs and writes what this one
// reads.
JITNORM_INLINE void wait_for_inputs() {
  if constexpr (kHasPdl) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Has the L2 cache fetch what will be loaded. Unlike a load, that may be done before the wait for a kernel that writes
// it.
JITNORM_INLINE void fetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// Has the compiler compute an address here, not where it is first used: no address is zero, but it cannot know that.
JITNORM_INLINE void compute_now(const void* at) {
  if (at == nullptr) asm volatile("exit;");
}

JITNORM_INLINE void launch_dependents() {
  if constexpr (kHasPdl) asm volatile("griddepcontrol.launch_dependents;");
}

// The same once `computed` is, not before.
JITNORM_INLINE void launch_dependents_after(float computed) {
  if constexpr (kHasPdl) asm volatile("griddepcontrol.launch_dependents;" ::"f"(computed));
}
