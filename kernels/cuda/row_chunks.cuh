// Element i of chunk `index` belongs to the row. Compare, do not clamp a length: ptxas 13.0 took the predicate of a
// clamping minimum (VIMNMX.RELU) for "the chunk is whole", and partial chunks read past their row.
JITNORM_INLINE bool is_in_row(int index, int i) { return kHasPartialChunk && index * kChunkSize + i < kHiddenSize; }

// Chunk `index` of the row at `row`; elements past the row are zero.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  const T* from = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(chunk.accesses, from);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = is_in_row(index, i) ? from[i] : T{};
}

JITNORM_INLINE uint4 exchange_with_neighbour(uint4 value) {
  return {__shfl_xor_sync(kFullWarp, value.x, 1), __shfl_xor_sync(kFullWarp, value.y, 1),
          __shfl_xor_sync(kFullWarp, value.z, 1), __shfl_xor_sync(kFullWarp, value.w, 1)};
}

// Two lanes store their neighbouring chunks together, 32 bytes of one and then 32 of the other: alone, each lane would
// write half a sector at a time. Add + RMSNorm of 4096 x 4096 went from 0.785 to 0.956 of the roofline.
// Every lane of the warp takes part.
template <typename T>
JITNORM_INLINE void store_in_pairs(T* row, int index, const Chunk<T, 16>& chunk) {
  constexpr int kAccesses = Chunk<T, 16>::kBytes / 16;
  const bool is_second = threadIdx.x % 2;
  uint4* to = reinterpret_cast<uint4*>(row + (index & ~1) * kChunkSize) + is_second;
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; i += 2) {
    const uint4 lower = chunk.accesses[i], upper = chunk.accesses[i + 1];
    const uint4 other = exchange_with_neighbour(is_second ? lower : upper);
    if (index >= kWholeChunks) continue;
    to[i] = is_second ? other : lower;
    to[i + kAccesses] = is_second ? upper : other;
  }
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  if constexpr (kStoresInPairs && kAccessBytes == 16) {
    store_in_pairs(row, index, chunk);
    return;
  }
  T* to = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(to, chunk.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (is_in_row(index, i)) to[i] = chunk.elements[i];
  }
}

// Makes the compiler unpack a 16-bit chunk anew where it is used next, rather than hold its floats until then: they
// take twice the registers. With 48 instead of 64, a multiprocessor has five blocks of 256 threads instead of four.
template <typename T, int kAccessBytes>
JITNORM_INLINE void forget_unpacked(Chunk<T, kAccessBytes>& chunk) {
  if constexpr (sizeof(T) < sizeof(float) && !kKeepsUnpacked) {
    JITNORM_UNROLL
    for (UInt32& word : chunk.words) asm volatile("" : "+r"(word));
  }
}
