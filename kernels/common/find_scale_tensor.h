// The scale of the tensor, or of a matrix.
JITNORM_INLINE float scale_at(const Arguments& a, Int64 row, int) {
  return value_of_scale(a.scale[kScalePerMatrix ? matrix_of(a, row) : 0]);
}
