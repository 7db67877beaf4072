// Chunks of a row that are items of neighbouring threads.
#pragma once

#include "accesses.cuh"

// Stores the chunk of an item. Four lanes or more store theirs together if rows have whole groups of them, because then
// all lanes of a group have items, or none: decoding to float32 reaches 0.96 of a copy, not 0.46. Two lanes do not: to
// bfloat16, they would reach 0.72, not 0.93.
template <int kAccessBytes, typename T>
JITNORM_INLINE void store_item_chunk(T* to, const T (&values)[kChunkSize]) {
  typedef typename Access<kAccessBytes>::Type Piece;
  constexpr int kLanes = Chunk<T, kAccessBytes>::kBytes / kAccessBytes;
  if constexpr (kLanes <= 2 || kHiddenSize % (kLanes * kChunkSize) != 0) {
    store_array<kAccessBytes>(to, values);
  } else {
    Chunk<T, kAccessBytes> chunk;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = values[i];
    const int own = threadIdx.x % kLanes;
    exchange_accesses<kAccessBytes>(chunk.words, ((1u << kLanes) - 1) << (threadIdx.x % 32 - own));
    Piece* pieces = reinterpret_cast<Piece*>(to - own * kChunkSize) + own;
    JITNORM_UNROLL
    for (int j = 0; j < kLanes; ++j) pieces[j * kLanes] = chunk.accesses[j];
  }
}
