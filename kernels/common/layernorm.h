// The normalize stage of layer normalization: y = ((h - mean) * rstd) * weight + bias.
constexpr bool kCenters = true;

JITNORM_INLINE float factor_of(float w) { return w; }
JITNORM_INLINE float centered(float h, float mean) { return add_rn(h, -mean); }

JITNORM_INLINE float normalize(float h, RowStatistic statistic, float factor, float bias) {
  return add_rn(mul_rn(mul_rn(centered(h, statistic.mean), statistic.rstd), factor), bias);
}
