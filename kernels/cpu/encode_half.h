// The encode stage of a plain norm: y rounded to the input's 16-bit type.
JITNORM_INLINE void encode_row(const Arguments& a, Int64 row, const Input* from, float rstd) {
  Input* to = a.out + row_offset(row, a.extents, a.out_strides);
  for (int i = 0; i < kHiddenSize; ++i) round_to(normalize(to_float(from[i]), rstd, to_float(a.weight[i])), to[i]);
}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
