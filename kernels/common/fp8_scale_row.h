// FP8 with one scale for each row, found and stored.
JITNORM_INLINE float fp8_scale_of(const Arguments& a, Int64 row, float row_amax, bool is_writer) {
  const float scale = fp8_scale_from(bounded(row_amax, amax_bound(a)));
  if (is_writer) a.row_scale[row] = scale;
  return scale;
}
