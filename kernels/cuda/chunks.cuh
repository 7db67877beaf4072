// Chunks of a row between memory and registers.
#pragma once

#include "split_chunks.cuh"
#include "whole_chunks.cuh"

// The chunk of values, rounded to the type of the row.
template <typename T>
JITNORM_INLINE void store_rounded(T* row, int index, const float (&values)[kChunkSize]) {
  Chunk<T, kInputAccessBytes> chunk;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) round_to(values[i], chunk.elements[i]);
#ifdef JITNORM_REORDERS_VALUES
  reorder_quarters(chunk.words);
#endif
  store_chunk(row, index, chunk);
}
