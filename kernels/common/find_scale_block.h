// The scale of a block, in the layout that it is stored in.
JITNORM_INLINE float scale_at(const Arguments& a, Int64 row, int column) {
  const Int64 offset = kHasSwizzledScales ? swizzled_offset(row, column) : linear_offset(row, column, a.rows);
  return value_of_scale(a.block_scale[offset]);
}
