// Rows of which each lane has whole chunks; the other alternative is in split_chunks.cuh.
#pragma once

#include "accesses.cuh"

#ifdef JITNORM_SPLITS_CHUNKS
#else
// The number of whole chunks in a row; the next one may hold a few elements, later ones none.
constexpr int kWholeChunks = kHiddenSize / kChunkSize;

// Where a chunk begins in the row.
JITNORM_INLINE int place_in_row(int index) { return index * kChunkSize; }

// The index of a lane with nothing of a row, also not of the chunks that it stores together with other lanes.
constexpr int kPastRow = (kChunks + 31) / 32 * 32;

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

// The chunks from the second to this one are loaded in aligned accesses, none of which reaches beyond the row.
#ifdef JITNORM_TWO_SIZES
constexpr int kUnalignedChunks = 0;
#else
constexpr int kUnalignedChunks = (kInputSize < kHiddenSize ? kInputSize : kHiddenSize) / kChunkSize - 1;
#endif

// Chunk `index` of the row at `row`; elements past the row are zero.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  const T* from = row + index * kChunkSize;
  // With up to four accesses, which find the rest of their sectors in the L1 cache, a chunk takes no longer.
  if constexpr (Chunk<T, kAccessBytes>::kBytes > 4 * kAccessBytes) {
    if (0 < index && index < kUnalignedChunks) {
      load_unaligned<kAccessBytes>(chunk.words, from);
      return;
    }
  }
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
  if constexpr (sizeof(T) == 4) {
    // A parameter may be aligned where rows are not.
    if (index < kWholeChunks && (kAccessBytes == 16 || reinterpret_cast<UInt64>(row) % 16 == 0)) {
      const uint4* from = reinterpret_cast<const uint4*>(row + index * kChunkSize);
      JITNORM_UNROLL
      for (int i = 0; i < 4; ++i) take_access(from[i ^ quarter_order()], chunk.words, 4 * i);
#ifdef JITNORM_REORDERS_VALUES
#else
      reorder_quarters(chunk.words);
#endif
      return;
    }
  }
  load_chunk(chunk, row, index);
}

// Stores the chunk that is not whole, if it is this one.
template <typename T, int kAccessBytes>
JITNORM_INLINE void store_partial(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  if (index < kWholeChunks) return;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (is_in_row(index, i)) row[index * kChunkSize + i] = chunk.elements[i];
  }
}

// As many lanes as a chunk has accesses store their neighbouring chunks together, one after another: alone, each lane
// would write a part of a sector at a time. Add + RMSNorm of 4096 x 4096 went from 0.785 to 0.956 of the roofline.
// Every lane of the warp takes part.
template <typename T, int kAccessBytes>
JITNORM_INLINE void store_together(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  typedef typename Access<kAccessBytes>::Type Piece;
  constexpr int kLanes = Chunk<T, kAccessBytes>::kBytes / kAccessBytes;
  Chunk<T, kAccessBytes> pieces;
  JITNORM_UNROLL
  for (int i = 0; i < Chunk<T, kAccessBytes>::kBytes / 4; ++i) pieces.words[i] = chunk.words[i];
  // All before any store: otherwise NVRTC 13.0 copies exchanges into both branches of the condition, in which the warp
  // diverges.
  exchange_accesses<kAccessBytes>(pieces.words);
  const int first = index / kLanes * kLanes;
  Piece* to = reinterpret_cast<Piece*>(row + first * kChunkSize) + threadIdx.x % kLanes;
  JITNORM_UNROLL
  for (int j = 0; j < kLanes; ++j) {
    if ((kWholeChunks % kLanes == 0 ? index : first + j) < kWholeChunks) to[j * kLanes] = pieces.accesses[j];
  }
  store_partial(row, index, chunk);
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk_alone(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  T* to = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(to, chunk.accesses);
    return;
  }
  store_partial(row, index, chunk);
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  if constexpr (kStoresTogether && kAccessBytes < Chunk<T, kAccessBytes>::kBytes) {
    store_together(row, index, chunk);
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
