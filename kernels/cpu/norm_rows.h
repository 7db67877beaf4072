// The loop nest of row-wise norms: each row is read from memory once, and again from the cache.
JITNORM_INLINE void norm_rows(const Arguments& a, Int64 first, Int64 last) {
  for (Int64 row = first; row < last; ++row) {
    if (row >= a.rows) {
      write_padding_row(a, row);
      continue;
    }
    const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
    encode_row(a, row, from, reciprocal_rms(row_sum(from), a.eps));
  }
}
