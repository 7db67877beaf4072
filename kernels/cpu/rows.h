JITNORM_INLINE void process_rows(const Arguments& a, Int64 first, Int64 last) {
  static thread_local float h[kRowCapacity];
  for (Int64 row = first; row < last; ++row) {
    if (!is_processed(a, row)) {
      if (is_padding(a, row)) write_padding_row(a, row);
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
