// The combine stage of an FP8 tensor with a scale: a row is what is loaded times that, followed by zeros, whatever the
// scale, if rows of codes are longer.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  const float scale = input_scale(a);
  for (int t = 0; t < tile_count(); ++t) {
    load_tile(from, kInputSize, t, h[t]);
    const int left = kInputSize - t * kTileSize;
    for_each_value(
        [&](int e, int k) { h[t].at[e][k] = k * kChunkSize + e < left ? rescaled(h[t].at[e][k], scale) : 0.0f; });
  }
}
