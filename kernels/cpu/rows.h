// The loop nest of row-wise ops: a row is read once and kept as floats in a buffer that stays in the cache.
JITNORM_INLINE void process_rows(const Arguments& a, Int64 first, Int64 last) {
  static thread_local float h[kHiddenSize];
  for (Int64 row = first; row < last; ++row) {
    if (!is_processed(a, row)) {
      if (is_padding(a, row)) write_padding_row(a, row);
      continue;
    }
    load_row(a, row, h);
    if constexpr (kNormalizes) {
      const float rstd = reciprocal_rms(a, row_sum_of_squares(h));
      for (int i = 0; i < kHiddenSize; ++i) h[i] = normalize(h[i], rstd, to_float(weight_of(a)[i]));
    }
    store_norm(a, row, h);
    encode_row(a, row, h);
  }
}
