// The combine stage without a residual: a row is what is loaded, followed by zeros if rows of codes are longer.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, float* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int i = 0; i < kInputSize; ++i) h[i] = to_float(from[i]);
  for (int i = kInputSize; i < kHiddenSize; ++i) h[i] = 0.0f;
}
