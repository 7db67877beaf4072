// The loop nest of row-wise ops: a row is read once and kept as floats in a buffer that stays in the cache.
JITNORM_INLINE RowStatistic statistic_of(const Arguments& a, Int64 row, float* h) {
  RowStatistic statistic{0.0f, 1.0f};
  if constexpr (kCenters) statistic.mean = mean_of(row_sum(h));
  if constexpr (kNormalizes) statistic.rstd = reciprocal_rms(row_sum_of_squares(h, statistic.mean), eps_of(a));
  if constexpr (kKeepsRstd) inv_rms_of(a)[row] = with_positive_nan(statistic.rstd);
  return statistic;
}

JITNORM_INLINE void process_rows(const Arguments& a, Int64 first, Int64 last) {
  static thread_local float h[kHiddenSize];
  for (Int64 row = first; row < last; ++row) {
    if (row >= a.rows) {
      write_padding_row(a, row);
      continue;
    }
    load_row(a, row, h);
    if constexpr (kNormalizes) {
      const RowStatistic statistic = statistic_of(a, row, h);
      for (int i = 0; i < kHiddenSize; ++i) {
        const float bias = kCenters ? bias_of(a)[i] : 0.0f;
        h[i] = normalize(h[i], statistic, to_float(weight_of(a)[i]), bias);
      }
    }
    store_norm(a, row, h);
    encode_row(a, row, h);
  }
}
