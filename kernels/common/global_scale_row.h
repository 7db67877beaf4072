// A global encode scale for each row, 448 * 6 / amax; its inverse, which decoding multiplies by, is stored.
JITNORM_INLINE float global_scale_of(const Arguments& a, Int64 row, float row_amax, bool is_writer) {
  const float finite = row_amax > kMaxFloat ? kMaxFloat : row_amax;
  const float exact = div_rn(448.0f * 6.0f, finite);
  const float scale = exact > kMaxFloat ? kMaxFloat : exact;
  if (is_writer) a.row_scale[row] = row_amax == 0.0f ? 0.0f : with_positive_nan(reciprocal_rn(scale));
  return scale;
}
