// What normalizing a row takes: its mean, of layer normalization alone, and the reciprocal of its root mean square.
struct RowStatistic {
  float mean, rstd;
};

// By a power of two, the quotient is the product with its reciprocal, bit for bit.
JITNORM_INLINE float mean_of(float sum) {
  return kHasPowerOfTwoSize ? mul_rn(sum, 1.0f / kHiddenSize) : div_rn(sum, (float)kHiddenSize);
}

JITNORM_INLINE float exact_reciprocal_rms(float sum_of_squares, float eps) {
  return reciprocal_rn(sqrt_rn(add_rn(mean_of(sum_of_squares), eps)));
}
