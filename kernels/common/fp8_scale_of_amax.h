// The scale of FP8 that is found: amax / (largest code), but not too small to divide by.
JITNORM_INLINE float exact_fp8_scale(float amax) {
  const float exact = div_rn(amax, kMaxCode);
  return with_positive_nan(exact < kSmallestRowScale ? kSmallestRowScale : exact);
}
