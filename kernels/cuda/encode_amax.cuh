// The encode stage that encodes nothing: the largest magnitude of all rows is all that is written.
struct EncodeContext {};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64, CallScale, float row_amax, bool) {
  constexpr int kWriters = 32 * kWarpsPerRow;  // threads that know the largest magnitude together
  const float amax = butterfly_max<32>(row_amax);
  // As integers, magnitudes have the same order, NaN above infinity.
  if (threadIdx.x % kWriters == 0) atomicMax(reinterpret_cast<UInt32*>(a.amax), bits_of(amax));
  return {};
}

JITNORM_INLINE void encode_chunk(const EncodeContext&, int, const float (&)[kChunkSize], float) {}
JITNORM_INLINE void end_row(const EncodeContext&, int) {}
JITNORM_INLINE void write_padding_row(const Arguments&, Int64, int) {}
