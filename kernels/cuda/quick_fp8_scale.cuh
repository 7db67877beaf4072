// The same, at less cost where numbers are ordinary.
JITNORM_INLINE float fp8_scale_from(float amax) {
  if (!is_ordinary(amax)) return exact_fp8_scale(amax);
  const float exact = quick_quotient(amax, kMaxCode, 1.0f / kMaxCode);
  return exact < kSmallestRowScale ? kSmallestRowScale : exact;
}

JITNORM_INLINE float reciprocal_of_scale(float scale) {
  return is_ordinary(scale) ? quick_reciprocal(scale) : reciprocal_rn(scale);
}
