// Divisions and roots of numbers in the normal range, bit for bit. CUDA's own functions each check exponents and
// branch, which a row has to wait for: without that, calls with few rows take 1 to 2 % less time in the mean, add +
// RMSNorm of 16 x 7168 1.96 us, not 2.03.
#pragma once

#include "intrinsics.h"

// From 2^-101 to 2^123: no remainder below is lost, and the reciprocal is normal. Zero, infinity and NaN are not.
JITNORM_INLINE bool is_in_normal_range(float a) { return bits_of(a) - 0x0d000000u < 0x70000000u; }

// a / divisor, given 1 / divisor, in one step, of which the error is less than 2^-23 ulp. Either a is in the normal
// range, and the divisor an odd number up to 2^18 times a power of two, so that the quotient is 2^-19 ulp or more from
// where its rounding changes. Or a is the product of a value of E2M1 and one of E4M3, zero included, and the quotient
// is normal: of all mantissas, none is closer than the error. Zero keeps its sign, because -0 is added to it.
JITNORM_INLINE float fast_quotient(float a, float divisor, float reciprocal) {
  const float quotient = mul_rn(a, reciprocal);
  return fma_rn(fma_rn(divisor, quotient, -a), -reciprocal, quotient);
}

// reciprocal_rn(sqrt_rn(a)) for an a in the normal range. The root takes the steps of __fsqrt_rn. The instruction's
// result is off from the root's reciprocal by 2^-22: one Newton step, rounded up, leaves less than an ulp, another one
// nothing.
JITNORM_INLINE float fast_reciprocal_root(float a) {
  const float r = approximate_reciprocal_root(a);
  const float near_root = mul_rn(a, r);
  const float root = fma_rn(fma_rn(-near_root, near_root, a), mul_rn(r, 0.5f), near_root);
  const float near = fma_ru(fma_rn(-root, r, 1.0f), r, r);
  return fma_rn(fma_rn(-root, near, 1.0f), near, near);
}
