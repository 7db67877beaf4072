// Rows of which each lane has whole chunks; the other alternative is in split_chunks.cuh.
#pragma once

#include "accesses.cuh"
#include "unaligned.cuh"

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

// Chunk `index` of the row at `row`; elements past the row are zero.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  const T* from = row + index * kChunkSize;
#ifdef JITNORM_UNALIGNED
  if constexpr (kIsShifted<T, kAccessBytes>) {
    const UInt8* end = reinterpret_cast<const UInt8*>(row + kLoadedSize);
    const int left = (kLoadedSize - index * kChunkSize) * (int)sizeof(T);
    load_unaligned<kAccessBytes, kLoadedSize % kChunkSize != 0>(chunk.words, end, left);
    return;
  }
#endif
  if (index < kWholeChunks) {
    copy_words(chunk.accesses, from);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = is_in_row(index, i) ? from[i] : T{};
}

#ifdef JITNORM_UNALIGNED
// A chunk of a parameter that is aligned, though rows are not, as if they were.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_aligned(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  const uint4* from = reinterpret_cast<const uint4*>(row + index * kChunkSize);
  constexpr int kAccesses = kChunkSize * (int)sizeof(T) / 16;
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; ++i) {
    const uint4 access = index < kWholeChunks ? from[kAccesses == 4 ? i ^ quarter_order() : i] : uint4{};
    take_access(access, chunk.words, 4 * i);
  }
  if constexpr (kAccesses == 4) reorder_quarters(chunk.words);
  if (!kHasPartialChunk || index != kWholeChunks) return;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = is_in_row(index, i) ? row[index * kChunkSize + i] : T{};
}
#endif

// A chunk of a parameter, which the rows of a block load again and again from the L1 cache.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_parameter(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  if constexpr (sizeof(T) == 4 && kAccessBytes == 16) {
    if (index < kWholeChunks) {
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
#ifdef JITNORM_UNALIGNED
  if constexpr (kIsShifted<T, kAccessBytes>) {
    if (bytes_past_aligned(row) == 0) return load_aligned(chunk, row, index);
  }
#endif
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

#ifdef JITNORM_UNALIGNED
// The chunk for an address that is aligned.
template <typename T, int kAccessBytes>
JITNORM_INLINE Chunk<T, 16> aligned_chunk(const Chunk<T, kAccessBytes>& chunk) {
  Chunk<T, 16> result;
  JITNORM_UNROLL
  for (int i = 0; i < Chunk<T, 16>::kBytes / 4; ++i) result.words[i] = chunk.words[i];
  return result;
}
#endif

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  constexpr bool kIsTogether = kStoresTogether && kAccessBytes < Chunk<T, kAccessBytes>::kBytes;
#ifdef JITNORM_UNALIGNED
  if constexpr (kAccessBytes < 16 && (kIsTogether || kShiftsStores)) {
    // Outputs may be aligned where inputs are not.
    if (__all_sync(kFullWarp, bytes_past_aligned(row) == 0)) {
      if constexpr (kIsTogether) return store_together(row, index, aligned_chunk(chunk));
      return store_chunk_alone(row, index, aligned_chunk(chunk));
    }
    if constexpr (!kIsTogether) {
      store_unaligned(reinterpret_cast<UInt8*>(row + index * kChunkSize), chunk.words, index < kWholeChunks);
      return store_partial(row, index, chunk);
    }
  }
#endif
  if constexpr (kIsTogether) {
    store_together(row, index, chunk);
  } else {
    store_chunk_alone(row, index, chunk);
  }
}

// Stores the chunk of codes that is not whole, if it is this one; only one-byte codes have such.
JITNORM_INLINE void store_partial_codes(UInt8* row, int index, const CodeChunk& codes) {
  if (index < kWholeChunks) return;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (is_in_row(index, i)) row[index * kCodeBytes + i] = (UInt8)(codes.words[i / 4] >> (i % 4 * 8));
  }
}

#ifdef JITNORM_UNALIGNED
// Stores the codes of a whole chunk to an address that is a multiple of their bytes.
JITNORM_INLINE void store_aligned_codes(UInt8* to, const UInt32 (&words)[kCodeWords]) {
  if constexpr (kCodeWords == 4) {
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  } else {
    *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
  }
}
#endif

#ifdef JITNORM_REORDERS_VALUES
JITNORM_INLINE void store_codes_alone(UInt8* row, int index, CodeChunk codes) {
  reorder_quarters(codes.words);
#else
JITNORM_INLINE void store_codes_alone(UInt8* row, int index, const CodeChunk& codes) {
#endif
  UInt8* to = row + index * kCodeBytes;
  if (index < kWholeChunks) {
#ifdef JITNORM_UNALIGNED
    if (kCodesAccessBytes < kCodeBytes && bytes_past_aligned(row) % kCodeBytes == 0) {
      return store_aligned_codes(to, codes.words);
    }
#endif
    copy_words(to, codes.accesses);
    return;
  }
  store_partial_codes(row, index, codes);
}

// Every lane of the warp takes part.
JITNORM_INLINE void store_codes(UInt8* row, int index, const CodeChunk& codes) {
#ifdef JITNORM_UNALIGNED
  if constexpr (kShiftsStores && kCodeBytes == 16 && kCodesAccessBytes < 16) {
    if (!__all_sync(kFullWarp, bytes_past_aligned(row) == 0)) {
      store_unaligned(row + index * kCodeBytes, codes.words, index < kWholeChunks);
      store_partial_codes(row, index, codes);
      return;
    }
  }
#endif
  store_codes_alone(row, index, codes);
}
#endif
