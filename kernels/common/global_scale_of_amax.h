// A global encode scale that is found, 448 * 6 / amax.
JITNORM_INLINE float global_scale_from(float amax) {
  const float finite = amax > kMaxFloat ? kMaxFloat : amax;
  const float exact = div_rn(448.0f * 6.0f, finite);
  return exact > kMaxFloat ? kMaxFloat : exact;
}

// Its inverse, which decoding multiplies by.
JITNORM_INLINE float decode_scale_from(float amax, float global_scale) {
  // Compared as bits: where the quotient is infinite, GCC 13 concludes that its divisor was zero, although a tiny one
  // overflows, too, and would drop a comparison with 0.0f.
  const bool is_zero = bits_of(amax) == 0;
  return is_zero ? 0.0f : with_positive_nan(reciprocal_rn(global_scale));
}
