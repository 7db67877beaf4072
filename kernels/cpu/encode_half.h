// The encode stage of a plain norm: y rounded to the input's type.
JITNORM_INLINE void encode_row(const Arguments& a, Int64 row, const float* y) {
  Input* to = a.out + row_offset(row, a.extents, a.out_strides);
  for (int i = 0; i < kHiddenSize; ++i) round_to(y[i], to[i]);
}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
