// The same, with one look at exponents where numbers are ordinary.
JITNORM_INLINE float reciprocal_rms(float sum_of_squares, float eps) {
  constexpr float kSize = kHiddenSize;
  const float mean = kHasPowerOfTwoSize ? mean_of(sum_of_squares) : quick_quotient(sum_of_squares, kSize, 1.0f / kSize);
  const float square = add_rn(mean, eps);
  const bool is_quick = is_ordinary(square) && (kHasPowerOfTwoSize || is_ordinary(sum_of_squares));
  return is_quick ? quick_reciprocal_root(square) : exact_reciprocal_rms(sum_of_squares, eps);
}
