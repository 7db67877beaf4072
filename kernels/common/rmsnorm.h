// The normalize stage of RMSNorm: y = (h * rstd) * (w + bias); a bias of zero is not added, so -0 keeps its sign.
constexpr bool kNormalizes = true;

JITNORM_INLINE const Weight* weight_of(const Arguments& a) { return a.weight; }

JITNORM_INLINE float reciprocal_rms(const Arguments& a, float sum_of_squares) {
  return reciprocal_rn(sqrt_rn(add_rn(div_rn(sum_of_squares, (float)kHiddenSize), a.eps)));
}

JITNORM_INLINE float normalize(float h, float rstd, float w) {
  return mul_rn(mul_rn(h, rstd), kHasUnitBias ? add_rn(w, 1.0f) : w);
}
