// 16-bit floats on the GPU. The conversions round to nearest even and write every NaN as 0x7fff.
JITNORM_INLINE float to_float(BFloat16 x) { return float_of((UInt32)x.bits << 16); }

JITNORM_INLINE float to_float(Float16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

JITNORM_INLINE float to_float(float x) { return x; }

JITNORM_INLINE void round_to(float x, BFloat16& result) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x)); }

JITNORM_INLINE void round_to(float x, Float16& result) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x)); }
