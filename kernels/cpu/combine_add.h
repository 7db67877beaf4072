// The combine stage with a residual: a row is the float32 sum, which may also be stored, rounded to the input's type.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, float* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* r = a.residual + row_offset(row, a.extents, a.residual_strides);
  Input* sum = a.residual_out + row_offset(row, a.extents, a.residual_out_strides);
  for (int i = 0; i < kHiddenSize; ++i) {
    h[i] = add_rn(to_float(x[i]), to_float(r[i]));
    if constexpr (kStoresSum) round_to(h[i], sum[i]);
  }
}
