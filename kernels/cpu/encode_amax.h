// The encode stage that encodes nothing: the largest magnitude of all rows is all that is written. Threads share it.
struct RowEncoding {};

JITNORM_INLINE RowEncoding begin_row(const Arguments& a, Int64, float row_amax) {
  // As integers, magnitudes keep their order, and NaN lies above infinity.
  const UInt32 amax = bits_of(with_positive_nan(row_amax));
  UInt32* largest = reinterpret_cast<UInt32*>(a.amax);
  UInt32 known = __atomic_load_n(largest, __ATOMIC_RELAXED);
  while (amax > known &&
         !__atomic_compare_exchange_n(largest, &known, amax, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return {};
}

JITNORM_INLINE void encode_tile(const Arguments&, Int64, int, const Tile&, RowEncoding) {}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
