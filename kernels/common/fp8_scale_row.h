// FP8 with one scale for each row, found and stored: amax / (largest code), but not too small to divide by.
JITNORM_INLINE float fp8_scale_of(const Arguments& a, Int64 row, float row_amax, bool is_writer) {
  const float exact = div_rn(row_amax, kMaxCode);
  const float scale = with_positive_nan(exact < kSmallestRowScale ? kSmallestRowScale : exact);
  if (is_writer) a.row_scale[row] = scale;
  return scale;
}
