// An input in E4M3 with a given global encode scale g is an FP8 tensor whose scale is 6 / g, in which g stands for
// 448 * 6 / amax.
JITNORM_INLINE float input_scale(const Arguments& a) {
  const float given = *a.global_scale;
  return mul_rn(kMaxCode, reciprocal_rn(kInvertsGlobalScale ? reciprocal_rn(given) : given));
}
JITNORM_INLINE float rescaled(float x, float scale) { return mul_rn(x, scale); }
