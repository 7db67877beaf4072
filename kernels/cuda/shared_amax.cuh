// The largest magnitudes of blocks whose chunks may be in two warps, such as the three chunks of 48 values: each chunk
// shares its own.
#pragma once

#include "exchange.cuh"

// The magnitudes of the chunks of the thread's row `row`, one of `kRowsAtOnce`.
JITNORM_INLINE float* chunk_amaxes(int row) {
  extern __shared__ uint4 staged[];
  const int of_block = (kRowsPerBlock == 1 ? 0 : threadIdx.x / kThreadsPerRow * kRowsAtOnce) + row;
  return reinterpret_cast<float*>(staged) + of_block * kChunks;
}

// Shares the largest magnitude of the j-th chunk that a thread has of a row. The blocks of a cluster expect those of
// all rows, also of one that is not there, whose indices are past the row.
JITNORM_INLINE void share_chunk_amax(int row, int j, int index, float amax) {
  if constexpr (kInClusters) index = thread_of_row() + j * kThreadsPerRow;
  if (index >= kChunks) return;
  float* slot = chunk_amaxes(row) + index;
  if constexpr (kInClusters) {
    JITNORM_UNROLL
    for (int block = 0; block < kBlocksPerRow; ++block) send(Exchange::kAmaxes, slot, amax, block);
  } else {
    *slot = amax;
  }
}

// The largest magnitude of a chunk's block, once all chunks have shared theirs.
JITNORM_INLINE float shared_block_amax(int row, int index) {
  constexpr int kBlockChunks = kBlockSize / kChunkSize;
  float amax = 0.0f;
  if (index >= kChunks) return amax;
  const float* of_chunks = chunk_amaxes(row) + index / kBlockChunks * kBlockChunks;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockChunks; ++i) amax = max_magnitude(amax, of_chunks[i]);
  return amax;
}
