// A global encode scale that is found, 448 * 6 / amax. The divisor is opaque: where the quotient is infinite, GCC 13
// concludes that amax was zero, although a tiny one overflows, too, and would make its decode scale zero.
JITNORM_INLINE float global_scale_from(float amax) {
  const float finite = amax > kMaxFloat ? kMaxFloat : amax;
  const float exact = div_rn(448.0f * 6.0f, opaque(finite));
  return exact > kMaxFloat ? kMaxFloat : exact;
}

// Its inverse, which decoding multiplies by.
JITNORM_INLINE float decode_scale_from(float amax, float global_scale) {
  return amax == 0.0f ? 0.0f : with_positive_nan(reciprocal_rn(global_scale));
}
