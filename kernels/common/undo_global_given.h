// A global encode scale for the tensor, or for a matrix.
JITNORM_INLINE float global_scale_at(const Arguments& a, Int64 row) {
  return a.global_scale[kScalePerMatrix ? matrix_of(a, row) : 0];
}
JITNORM_INLINE float undo_global_scale(float value, float scale) { return div_rn(value, scale); }
