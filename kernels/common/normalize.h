// The normalize stage: y = (h * rstd) * (w + bias); a bias of zero is not added, so -0 weights keep their sign.
JITNORM_INLINE float reciprocal_rms(float sum_of_squares, float eps) {
  return reciprocal_rn(sqrt_rn(add_rn(div_rn(sum_of_squares, (float)kHiddenSize), eps)));
}

JITNORM_INLINE float normalize(float h, float rstd, float w) { return mul_rn(mul_rn(h, rstd), w); }
