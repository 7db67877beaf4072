// The combine stage without a residual: a row is what is loaded.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, float* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int i = 0; i < kHiddenSize; ++i) h[i] = to_float(from[i]);
}
