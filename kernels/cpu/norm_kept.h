// y is kept beside its codes, rounded to the input's type.
JITNORM_INLINE void store_norm(const Arguments& a, Int64 row, int t, const Tile& y) {
  store_tile(y, t, a.y_out + row_offset(row, a.extents, a.y_out_strides));
}
