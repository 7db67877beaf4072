// The scale of FP8 or INT8 codes that a row or the tensor shares: given, or computed from an amax and stored.
#pragma once

#include "arguments.h"
#include "fast_path.h"
#include "intrinsics.h"
#include "tensor_amax.h"

// The upper bound of every amax that becomes a scale, if there is one.
JITNORM_INLINE float amax_bound(const Arguments& a) {
  if constexpr (kHasAmaxBound) return *a.scale_ub;
  return 0.0f;
}

// NaN stays.
JITNORM_INLINE float bounded(float amax, float bound) { return kHasAmaxBound && amax > bound ? bound : amax; }

JITNORM_INLINE float exact_fp8_scale(float amax) {
  const float exact = div_rn(amax, kMaxCode);
  return with_positive_nan(exact < kSmallestScale ? kSmallestScale : exact);
}

// Whether a scale is computed without branches: for a block, the lanes past its row, whose amax is zero, would take the
// slow path of the division. On an H100, RMSNorm to FP8 groups of 1024 x 1920 went from 4.11 us to 3.68, of 1024 x 5760
// from 7.96 to 7.63, SwiGLU to them of 512 x 7552 from 8.42 to 8.10.
constexpr bool kFindsScalesFast = kDivisionsBranch && kSmallestScale >= 0x1p-101f && kSmallestScale <= 0x1p126f;

// amax / (largest code), with a lower bound so that it can be divided by. What lies below the normal range ends there;
// only infinity and NaN have no remainder.
JITNORM_INLINE float fp8_scale_from(float amax) {
  if constexpr (!kFindsScalesFast) return exact_fp8_scale(amax);
  constexpr float kReciprocal = 1.0f / kMaxCode;
  const float quotient = fast_quotient(amax, kMaxCode, kReciprocal);
  return amax <= kMaxFloat ? max_or_limit(quotient, kSmallestScale) : mul_rn(amax, kReciprocal);
}

// Of a computed scale, which is in the normal range, infinity or NaN.
JITNORM_INLINE float reciprocal_of_scale(float scale) {
  if constexpr (!kFindsScalesFast) return reciprocal_rn(scale);
  return scale <= kMaxFloat ? fast_reciprocal(scale) : approximate_reciprocal(scale);
}

// What all rows use: the computed scale and what it is computed from, or else the reciprocal of the given scale or the
// bound of each row's amax.
struct PreparedFp8Scale {
  float scale, amax;
};

#ifdef JITNORM_TENSOR_AMAX
// What a launch is given, as stored in memory: the tensor's scale, or its amax, which another launch has computed.
JITNORM_INLINE GivenScale given_fp8_scale(const Arguments& a) { return given_amax(a); }

JITNORM_INLINE PreparedFp8Scale prepare_fp8_scale(const Arguments&, const GivenScale& given) {
  const float amax = tensor_amax(given);
  return {fp8_scale_from(amax), amax};
}
#else
// What a launch is given, as stored in memory: the tensor's scale, if anything.
JITNORM_INLINE GivenScale given_fp8_scale(const Arguments& a) {
  if constexpr (kScaleOwner == ScaleOwner::kRow) return 0.0f;
  return *a.scale;
}

JITNORM_INLINE PreparedFp8Scale prepare_fp8_scale(const Arguments& a, GivenScale given) {
  if constexpr (kScaleOwner == ScaleOwner::kRow) return {amax_bound(a), 0.0f};
  return {computed(reciprocal_rn(given)), 0.0f};
}
#endif

// The scale of a row, or the reciprocal of the given one; stores a computed scale.
JITNORM_INLINE float fp8_scale_of_row(const Arguments& a, Int64 row, PreparedFp8Scale prepared, float row_amax,
                                      bool is_writer) {
  float scale = prepared.scale;
  if constexpr (kScaleOwner == ScaleOwner::kRow) {
    scale = fp8_scale_from(bounded(row_amax, prepared.scale));
    if (is_writer) a.row_scale[row] = scale;
  } else if constexpr (kGlobalScale == GlobalScaleKind::kTensor) {
    if (is_writer && row == 0) {
      *a.tensor_scale = scale;
      *a.amax = prepared.amax;
    }
  }
  return scale;
}

// What values are multiplied by.
JITNORM_INLINE float fp8_factor_of(float scale) {
  constexpr bool kIsGiven = kScaleOwner == ScaleOwner::kTensor && kGlobalScale == GlobalScaleKind::kNone;
  return kIsGiven ? scale : reciprocal_of_scale(scale);
}
