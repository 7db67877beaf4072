// Rows of which each lane has whole chunks; the other alternative is in split_chunks.cuh.
#pragma once

#include "chunk.cuh"

#ifdef JITNORM_SPLITS_CHUNKS
#else
// The number of whole chunks in a row; the next one may hold a few elements, later ones none.
constexpr int kWholeChunks = kHiddenSize / kChunkSize;

// Where a chunk begins in the row.
JITNORM_INLINE int place_in_row(int index) { return index * kChunkSize; }

// The index of a lane with nothing of a row.
constexpr int kPastRow = kChunks;

// Element i of chunk `index` belongs to the row. Compare, do not clamp a length: ptxas 13.0 took the predicate of a
// clamping minimum (VIMNMX.RELU) for "the chunk is whole", and partial chunks read past their row.
JITNORM_INLINE bool is_in_row(int index, int i) { return kHasPartialChunk && index * kChunkSize + i < kHiddenSize; }

JITNORM_INLINE bool is_there(int index, int i) { return index < kWholeChunks || is_in_row(index, i); }

// The sum over a chunk, to which add(sum, i) adds that of element i.
template <typename Add>
JITNORM_INLINE float sum_over_chunk(Add add) {
  float sum = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) sum = add(sum, i);
  return sum;
}

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

// A chunk of a parameter, which the rows of a block load again and again from the L1 cache.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_parameter(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  if constexpr (sizeof(T) == 4 && kAccessBytes == 16) {
    if (index < kWholeChunks) {
      const uint4* from = reinterpret_cast<const uint4*>(row + index * kChunkSize);
      JITNORM_UNROLL
      for (int i = 0; i < 4; ++i) chunk.accesses[i] = from[i ^ quarter_order()];
#ifdef JITNORM_REORDERS_VALUES
#else
      reorder_quarters(chunk.words);
#endif
      return;
    }
  }
  load_chunk(chunk, row, index);
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
  // All before any store: otherwise NVRTC 13.0 copies exchanges into both branches of the condition, in which the warp
  // diverges.
  uint4 others[kAccesses / 2];
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; i += 2) {
    others[i / 2] = exchange_with_neighbour(is_second ? chunk.accesses[i] : chunk.accesses[i + 1]);
  }
  if (index >= kWholeChunks) return;
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; i += 2) {
    to[i] = is_second ? others[i / 2] : chunk.accesses[i];
    to[i + kAccesses] = is_second ? chunk.accesses[i + 1] : others[i / 2];
  }
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk_alone(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
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

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  if constexpr (kStoresInPairs && kAccessBytes == 16) {
    store_in_pairs(row, index, chunk);
  } else {
    store_chunk_alone(row, index, chunk);
  }
}

#ifdef JITNORM_REORDERS_VALUES
JITNORM_INLINE void store_codes(UInt8* row, int index, CodeChunk codes) {
  reorder_quarters(codes.words);
#else
JITNORM_INLINE void store_codes(UInt8* row, int index, const CodeChunk& codes) {
#endif
  if (index < kWholeChunks) {
    copy_words(row + index * kCodeBytes, codes.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {  // only one-byte codes have partial chunks
    if (is_in_row(index, i)) row[index * kCodeBytes + i] = (UInt8)(codes.words[i / 4] >> (i % 4 * 8));
  }
}
#endif
