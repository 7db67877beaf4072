// The combine stage of SwiGLU: a row is silu(gate) * value of an input with both.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int t = 0; t < tile_count(); ++t) {
    float values[kTileSize] = {};
    const int left = kHiddenSize - t * kTileSize;
    for (int i = 0; i < (left < kTileSize ? left : kTileSize); ++i) {
      const Input* gate = from + gate_position(t * kTileSize + i);
      values[i] = mul_rn(silu(to_float(gate[0])), to_float(gate[kGateColumns]));
    }
    load_whole_tile(values, h[t]);
  }
}
