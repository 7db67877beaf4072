// y is kept beside its codes, rounded to the input's type.
JITNORM_INLINE void store_norm(const Arguments& a, Int64 row, const float* y) {
  Input* to = a.y_out + row_offset(row, a.extents, a.y_out_strides);
  for (int i = 0; i < kHiddenSize; ++i) round_to(y[i], to[i]);
}
