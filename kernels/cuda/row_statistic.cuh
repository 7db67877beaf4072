// The reciprocal root mean square of a row, with one look at exponents where numbers are in the normal range.
#pragma once

#include "../common/fast_path.h"
#include "../common/normalize.h"

// reciprocal_rn(sqrt_rn(a)) for an a in the normal range. The root takes the steps of __fsqrt_rn. The instruction's
// result is off from the root's reciprocal by 2^-22: one of Newton's steps, rounded up, leaves less than an ulp,
// another one nothing.
JITNORM_INLINE float fast_reciprocal_root(float a) {
  const float r = approximate_reciprocal_root(a);
  const float near_root = mul_rn(a, r);
  const float root = fma_rn(fma_rn(-near_root, near_root, a), mul_rn(r, 0.5f), near_root);
  const float near = __fmaf_ru(fma_rn(-root, r, 1.0f), r, r);
  return fma_rn(fma_rn(-root, near, 1.0f), near, near);
}

JITNORM_INLINE float reciprocal_rms(float sum_of_squares, float eps) {
  if constexpr (!kTakesFastPath) return exact_reciprocal_rms(sum_of_squares, eps);
  constexpr float kSize = kHiddenSize;
  const float mean = kHasPowerOfTwoSize ? mean_of(sum_of_squares) : fast_quotient(sum_of_squares, kSize, 1.0f / kSize);
  const float square = add_rn(mean, eps);
  const bool is_fast = is_in_normal_range(square) && (kHasPowerOfTwoSize || is_in_normal_range(sum_of_squares));
  return is_fast ? fast_reciprocal_root(square) : exact_reciprocal_rms(sum_of_squares, eps);
}
