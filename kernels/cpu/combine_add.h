// The combine stage with a residual: a row is the float32 sum, which may also be stored, rounded to the input's type.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, Tile* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* r = a.residual + row_offset(row, a.extents, a.residual_strides);
  Input* sum = a.residual_out + row_offset(row, a.extents, a.residual_out_strides);
  for (int t = 0; t < tile_count(); ++t) {
    Tile residual;
    load_tile(x, kHiddenSize, t, h[t]);
    load_tile(r, kHiddenSize, t, residual);
    for_each_value([&](int e, int k) { h[t].at[e][k] = add_rn(h[t].at[e][k], residual.at[e][k]); });
    if constexpr (kStoresSum) store_tile(h[t], t, sum);
  }
}
