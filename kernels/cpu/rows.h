// The schedule of row-wise ops: rows one after another, each read once and kept as floats in a buffer that stays in
// the cache.
JITNORM_INLINE float* row_buffer() {
  static thread_local float buffer[kRowCapacity];
  float* first = buffer;
  // Otherwise GCC asks for the address of a thread's own array again in every loop iteration, which takes as long as
  // the rest of a plain norm.
  asm("" : "+r"(first));
  return first;
}

JITNORM_INLINE void process_row(const Arguments& a, Int64 row, float* h) {
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

JITNORM_INLINE void process_rows(const Arguments& a, Int64 first, Int64 last) {
  float* h = row_buffer();
  for (Int64 row = first; row < last; ++row) {
    if (is_processed(a, row)) {
      process_row(a, row, h);
    } else if (is_padding(a, row)) {
      write_padding_row(a, row);
    }
  }
}
