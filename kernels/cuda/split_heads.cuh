// Rotated heads with an odd number of chunks, of which each lane has half a chunk of both halves: what it rotates with
// each other. The other alternative, for rows of several warps, is in split_chunks.cuh.
#pragma once

#include "chunk.cuh"

#ifdef JITNORM_SPLITS_HEADS
// Where element i of what a lane has is in the head.
JITNORM_INLINE int place_in_row(int index, int i = 0) {
  return i / kHalf * (kHiddenSize / 2) + index * kHalf + i % kHalf;
}

JITNORM_INLINE bool has_half(int index, int) { return index < kChunks; }

// The index of a lane with nothing of a row.
constexpr int kPastRow = kChunks;

// The sum over the chunk of the lane's own number, to which add(sum, i) adds that of element i of what the lane has:
// one first half of a chunk, with whose sum the next lane goes on, and one second half. Every lane of the warp takes
// part.
template <typename Add>
JITNORM_INLINE float sum_over_chunk(Add add) {
  const int lane = threadIdx.x % kLanesPerRow;
  const bool is_odd = lane % 2 == 1;
  float sums[2] = {};
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) sums[i / kHalf] = add(sums[i / kHalf], i);
  const float begun = is_odd ? sums[1] : sums[0];
  sums[0] = sums[1] = __shfl_sync(kFullWarp, begun, lane == 0 ? kChunks - 1 : lane - 1, kLanesPerRow);
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) sums[i / kHalf] = add(sums[i / kHalf], i);
  const float sum = is_odd ? sums[0] : sums[1];
  const int last_half = 2 * lane + 1;
  const float own = __shfl_sync(kFullWarp, sum, last_half < kChunks ? last_half : last_half - kChunks, kLanesPerRow);
  return lane < kChunks ? own : 0.0f;
}
#endif
