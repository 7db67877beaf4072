// The scale of a block, and its effect on the block's codes.
#pragma once

#include "arguments.h"
#include "codes.h"
#include "fp8_scale.h"

struct BlockScale {
  UInt32 stored;  // the scale's bits
  float encode;   // codes are those of y * encode
  UInt32 keep;    // and-mask of the codes: zero for a zero block
  UInt32 fill;    // or-mask of the codes: NaN's code for a block that holds one
};

// Values that all block scales share.
struct GlobalScale {
  // For E4M3 scales.
  float reciprocal_max;  // global scale / 6
  float inverse;         // 1 / global scale
  float quarter;         // global scale / 4
  // For float32 scales.
  float amax_bound;
};

JITNORM_INLINE GlobalScale global_scale_from(const Arguments& a, float global_scale) {
  if constexpr (kScaleFormat == ScaleFormat::kUE8M0) return {};
  if constexpr (kScaleFormat == ScaleFormat::kF32) return {0.0f, 0.0f, 0.0f, amax_bound(a)};
  // The compiler does not know the reciprocal of 1: spelling it out saves three instructions per block.
  if constexpr (kGlobalScale == GlobalScaleKind::kNone) return {kReciprocalMax, 1.0f, 0.25f};
  return {mul_rn(global_scale, kReciprocalMax), computed(reciprocal_rn(global_scale)), mul_rn(global_scale, 0.25f)};
}

JITNORM_INLINE BlockScale block_scale(UInt32 stored, float encode, bool is_zero, bool is_nan) {
  return {stored, encode, is_zero ? 0u : is_nan ? 0u : ~0u, is_nan ? kNaNCodes : 0u};
}

template <ScaleFormat>
JITNORM_INLINE BlockScale scale_of(float amax, GlobalScale global);

// E4M3, multiplied by a global encode scale (NVFP4).
template <>
JITNORM_FORCE_INLINE BlockScale scale_of<ScaleFormat::kE4M3>(float amax, GlobalScale global) {
  const UInt32 code = encode_e4m3(mul_rn(amax, global.reciprocal_max));
  const float encode = reciprocal_rn(mul_rn(decode_e4m3(code), global.inverse));
  return block_scale(code, min_or_limit(encode, kMaxFloat), (code & 0x7fu) == 0, (code & 0x7fu) == 0x7fu);
}

// The biased exponent of a UE8M0 scale.
JITNORM_INLINE UInt32 scale_exponent(float amax) {
  if constexpr (kScaleRounding == ScaleRounding::kFloor) {  // OCP's rule: amax's exponent minus the largest code's
#ifdef JITNORM_ROUNDS_AMAX
    const UInt32 exponent = (bits_of(amax) + kHalfOfLastBit) >> 23, of_code = kMaxExponent;  // rounded like a code
#else
    const UInt32 exponent = bits_of(amax) >> 23, of_code = kMaxExponent;
#endif
    return exponent > of_code ? exponent - of_code : 0u;
  }
  // The exponent of the smallest normal power of two that is not below amax / (largest code).
  const UInt32 bits = bits_of(mul_rn(amax, kReciprocalMax));
  return (bits >> 23) + ((bits & 0x7fffffu) != 0);
}

// UE8M0, powers of two (MXFP4, MXFP8).
template <>
JITNORM_FORCE_INLINE BlockScale scale_of<ScaleFormat::kUE8M0>(float amax, GlobalScale) {
  const UInt32 unbounded = scale_exponent(amax);
  const UInt32 exponent = unbounded < 254u ? unbounded : 254u;
  const float encode = float_of(exponent < 254u ? (254u - exponent) << 23 : 0x00400000u);  // 2^(127 - exponent)
  const bool is_nan = amax != amax;
  return block_scale(is_nan ? 0xffu : exponent, encode, amax == 0.0f, is_nan);
}

// The smallest power of two that is not below a positive, normal x; NaN stays.
JITNORM_INLINE float power_of_two_above(float x) {
  return x != x ? x : float_of((bits_of(x) + 0x7fffffu) & 0x7f800000u);
}

// float32, which decodes by multiplication (FP8 and INT8 for block-scaled GEMMs).
template <>
JITNORM_FORCE_INLINE BlockScale scale_of<ScaleFormat::kF32>(float unbounded, GlobalScale global) {
  const float exact = fp8_scale_from(bounded(unbounded, global.amax_bound));
  const float scale = kPowerOfTwoScales ? power_of_two_above(exact) : exact;
  // Values times NaN are NaN, whose codes need no mask.
  return block_scale(bits_of(scale), reciprocal_of_scale(scale), false, false);
}

// The scale of a block of values.
template <ScaleChoice>
JITNORM_INLINE BlockScale choose_scale(const float* y, float amax, GlobalScale global);

template <>
JITNORM_FORCE_INLINE BlockScale choose_scale<ScaleChoice::kOnly>(const float*, float amax, GlobalScale global) {
  return scale_of<kScaleFormat>(amax, global);
}

// Adds to the sum of errors, or of their squares.
JITNORM_INLINE float add_error(float sum, float error) {
  return kSumsAbsoluteErrors ? add_rn(sum, magnitude_of(error)) : fma_rn(error, error, sum);
}
#ifdef JITNORM_PACKS_FLOATS
JITNORM_INLINE float add_error(float sum, FloatPair errors) {
  return add_error(add_error(sum, errors.first), errors.second);
}
#endif

// The error of a block's values with a scale in E4M3. It does not change if all signs are flipped, and values take
// fewer operations than codes.
JITNORM_INLINE float error_of(const float* y, const BlockScale& scale, float inverse) {
  const float decode = mul_rn(decode_e4m3(scale.stored), inverse);
  float error = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const float m = magnitude_of(y[i]);
    const float value = rounded_to_e2m1(min_or_limit(mul_rn(m, scale.encode), 6.0f), 1.0f);
    error = add_error(error, add_rn(m, -mul_rn(float_of(bits_of(value) & scale.keep), decode)));
  }
  return error;
}

// The scale whose codes decode closer to the values.
template <>
JITNORM_FORCE_INLINE BlockScale choose_scale<ScaleChoice::kFourOverSix>(const float* y, float amax,
                                                                        GlobalScale global) {
  const BlockScale six = scale_of<kScaleFormat>(amax, global);
  const BlockScale four = scale_of<kScaleFormat>(amax, {global.quarter, global.inverse, global.quarter});
  return error_of(y, four, global.inverse) < error_of(y, six, global.inverse) ? four : six;
}
