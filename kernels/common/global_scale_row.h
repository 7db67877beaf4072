// A global encode scale for each row, 448 * 6 / amax; its inverse, which decoding multiplies by, is stored.
JITNORM_INLINE float global_scale_of(const Arguments& a, Int64 row, float row_amax, bool is_writer) {
  const float finite = row_amax > kMaxFloat ? kMaxFloat : row_amax;
  const float exact = div_rn(448.0f * 6.0f, finite);
  const float scale = exact > kMaxFloat ? kMaxFloat : exact;
  // Compared as bits: where `exact` is infinite, GCC 13 concludes that its divisor was zero, although a tiny one
  // overflows, too, and would drop a comparison with 0.0f.
  const bool is_zero = bits_of(row_amax) == 0;
  if (is_writer) a.row_scale[row] = is_zero ? 0.0f : with_positive_nan(reciprocal_rn(scale));
  return scale;
}
