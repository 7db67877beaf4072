// Rows of which each lane has halves of two chunks: lanes 2k and 2k + 1 those of chunks k and k + 16 of a group. Each
// access of a warp is then without gaps; see kernels/split_chunks.py. The other alternative is in whole_chunks.cuh.
#pragma once

#include "split_heads.cuh"

#ifdef JITNORM_SPLITS_CHUNKS
#ifdef JITNORM_SPLITS_HEADS
#else
constexpr int kGroupSize = 32 * kChunkSize;

// Where element i of what a lane has is in the row.
JITNORM_INLINE int place_in_row(int index, int i = 0) {
  return index / 32 * kGroupSize + i / kHalf * (kGroupSize / 2) + index % 32 * kHalf + i % kHalf;
}

// Halves belong to the row as a whole.
JITNORM_INLINE bool has_half(int index, int half) { return place_in_row(index, half * kHalf) < kHiddenSize; }

// The index of a lane with nothing of a row.
constexpr int kPastRow = (kHiddenSize + kGroupSize - 1) / kGroupSize * 32;

// Sums over chunks k and k + 16, to which add(sum, i) adds that of element i, in lane 2k + 1. It goes on with the sums
// over their first halves, from lane 2k; what even lanes get has no meaning. The sum of both is the first step of the
// butterfly.
template <typename Add>
JITNORM_INLINE float sum_over_chunk(Add add) {
  float sums[2] = {};
  JITNORM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int first = half * kHalf;
    JITNORM_UNROLL
    for (int i = first; i < first + kHalf; ++i) sums[half] = add(sums[half], i);
    sums[half] = __shfl_xor_sync(kFullWarp, sums[half], 1);
    JITNORM_UNROLL
    for (int i = first; i < first + kHalf; ++i) sums[half] = add(sums[half], i);
  }
  return add_rn(sums[0], sums[1]);
}
#endif

JITNORM_INLINE bool is_there(int index, int i) { return has_half(index, i / kHalf); }

template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  typedef typename Access<kAccessBytes>::Type Piece;
  constexpr int kPieces = kHalf * (int)sizeof(T) / kAccessBytes;  // of a half
  JITNORM_UNROLL
  for (int i = 0; i < 2 * kPieces; ++i) {
    const Piece* from = reinterpret_cast<const Piece*>(row + place_in_row(index, i / kPieces * kHalf));
    chunk.accesses[i] = has_half(index, i / kPieces) ? from[i % kPieces] : Piece{};
  }
}

// A chunk of a parameter.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_parameter(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  if constexpr (sizeof(T) == 4 && kAccessBytes == 16) {
    JITNORM_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (!has_half(index, half)) continue;
      const uint4* from = reinterpret_cast<const uint4*>(row + place_in_row(index, half * kHalf));
      JITNORM_UNROLL
      for (int i = 0; i < 2; ++i) chunk.accesses[2 * half + i] = from[i ^ quarter_order()];
    }
#ifdef JITNORM_REORDERS_VALUES
#else
    reorder_quarters(chunk.words);
#endif
    return;
  }
  load_chunk(chunk, row, index);
}

// Halves of values or codes.
template <typename Half, typename T>
JITNORM_INLINE void store_halves(T* row, int index, const void* halves) {
  JITNORM_UNROLL
  for (int i = 0; i < 2; ++i) {
    Half* to = reinterpret_cast<Half*>(row + place_in_row(index, i * kHalf));
    if (has_half(index, i)) *to = static_cast<const Half*>(halves)[i];
  }
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  store_halves<uint4>(row, index, chunk.words);
}

#ifdef JITNORM_REORDERS_VALUES
JITNORM_INLINE void store_codes_alone(UInt8* row, int index, CodeChunk codes) {
  reorder_quarters(codes.words);
#else
JITNORM_INLINE void store_codes_alone(UInt8* row, int index, const CodeChunk& codes) {
#endif
  store_halves<uint2>(row, index, codes.words);
}

JITNORM_INLINE void store_codes(UInt8* row, int index, const CodeChunk& codes) { store_codes_alone(row, index, codes); }
#endif
