// The combine stage of hyper-connections (mHC): a row is the sum of kStreams rows, each times a factor of its own.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, Tile* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const float* factors = a.mix + row * kStreams;
  for (int t = 0; t < tile_count(); ++t) {
    h[t] = Tile{};
    for (int s = 0; s < kStreams; ++s) {
      Tile stream;
      load_tile(x + (Int64)s * kHiddenSize, kHiddenSize, t, stream);
      for_each_value([&](int e, int k) { h[t].at[e][k] = fma_rn(factors[s], stream.at[e][k], h[t].at[e][k]); });
    }
    clear_padding(t, h[t]);
  }
}
