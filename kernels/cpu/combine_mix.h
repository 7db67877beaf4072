// The combine stage of hyper-connections (mHC): a row is the sum of kStreams rows, each times a factor of its own.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, float* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const float* factors = a.mix + row * kStreams;
  for (int i = 0; i < kHiddenSize; ++i) {
    h[i] = 0.0f;
    for (int s = 0; s < kStreams; ++s) h[i] = fma_rn(factors[s], to_float(x[(Int64)s * kHiddenSize + i]), h[i]);
  }
}
