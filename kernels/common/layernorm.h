// The normalize stage of layer normalization: y = ((h - mean) * rstd) * weight + bias.
constexpr bool kCenters = true;

JITNORM_INLINE float centered(float h, float mean) { return add_rn(h, -mean); }

JITNORM_INLINE float normalize(float h, RowStatistic statistic, float w, float bias) {
  return add_rn(mul_rn(mul_rn(centered(h, statistic.mean), statistic.rstd), w), bias);
}
