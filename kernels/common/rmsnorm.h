// The normalize stage of RMSNorm: y = (h * rstd) * (w + bias); a bias of zero is not added, so -0 keeps its sign.
constexpr bool kCenters = false;

JITNORM_INLINE float factor_of(float w) { return kHasUnitBias ? add_rn(w, 1.0f) : w; }
JITNORM_INLINE float centered(float h, float) { return h; }

JITNORM_INLINE float normalize(float h, RowStatistic statistic, float factor, float) {
  return mul_rn(mul_rn(h, statistic.rstd), factor);
}
