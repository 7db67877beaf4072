// The reciprocal root mean square of a row.
JITNORM_INLINE float reciprocal_rms(float sum_of_squares, float eps) {
  return exact_reciprocal_rms(sum_of_squares, eps);
}
