// The scale of a block, in the layout that it is stored in, each matrix padded for itself.
JITNORM_INLINE float scale_at(const Arguments& a, Int64 row, int column) {
  const Int64 matrix = matrix_of(a, row), m = row - matrix * a.rows;
  const Int64 offset = kHasSwizzledScales ? swizzled_offset(m, column) : linear_offset(m, column, a.rows);
  return value_of_scale(a.block_scale[matrix * padded_rows(a.rows) * kPaddedScaleColumns + offset]);
}
