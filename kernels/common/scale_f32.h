// Group scales in float32, which decode by multiplication (FP8 for block-scaled GEMMs). There is no global scale.
typedef float Scale;

struct GlobalScale {
  AmaxBound bound;
};

JITNORM_INLINE GlobalScale prepare_global_scale(const Arguments& a, float) { return {amax_bound(a)}; }

// The smallest power of two that is not below a positive, normal x; NaN stays.
JITNORM_INLINE float power_of_two_above(float x) {
  return x != x ? x : float_of((bits_of(x) + 0x7fffffu) & 0x7f800000u);
}

JITNORM_INLINE BlockScale scale_of(float unbounded, GlobalScale global) {
  const float amax = bounded(unbounded, global.bound);
  const float exact = div_rn(amax < kSmallestAmax ? kSmallestAmax : amax, kMaxCode);
  const float scale = with_positive_nan(kPowerOfTwoScales ? power_of_two_above(exact) : exact);
  return block_scale(bits_of(scale), reciprocal_rn(scale), false, scale != scale);
}
