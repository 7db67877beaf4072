// The combine stage without a residual: a row is what is loaded, followed by zeros if rows of codes are longer.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int t = 0; t < tile_count(); ++t) load_tile(from, kInputSize, t, h[t]);
}
