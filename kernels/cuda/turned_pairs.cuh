// Heads of which each lane has two chunks: half the rotated elements apart, so that it rotates them with each other, or
// two of those that are not rotated, which are taken in halves, too.
#pragma once

#include "../common/rotation.h"
#include "whole_chunks.cuh"

#ifdef JITNORM_HOLDS_HALVES
constexpr int kTurnedPairs = kAngles / kChunkSize, kPairs = (kChunks + 1) / 2, kOtherPairs = kPairs - kTurnedPairs;

// Whether the chunks of a lane are as far apart as with any other row.
constexpr bool kPairsLieInOrder = kTurnedPairs == kLanesPerRow;

// Which pair of chunks a lane has. Those without one repeat others: they load and store the same.
JITNORM_INLINE int pair_of_lane(int lane) {
  constexpr int kIdleLanes = kLanesPerRow - kPairs;
  return lane < kPairs ? lane : lane - kIdleLanes;
}

JITNORM_INLINE bool is_turned_pair(int pair) { return kOtherPairs == 0 || pair < kTurnedPairs; }

JITNORM_INLINE int chunk_of_pair(int pair, int half) {
  const int chunk = pair + (is_turned_pair(pair) ? half * kTurnedPairs : kTurnedPairs + half * kOtherPairs);
  __builtin_assume(kChunks % 2 == 1 || chunk < kChunks);  // so that no load waits for a check
  return chunk;
}

// Gives a lane the sums of the chunks that it would have with any other row, instead of those of its own.
JITNORM_INLINE void sort_halves(float (&sums)[2]) {
  float sorted[2];
  JITNORM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int chunk = threadIdx.x % kLanesPerRow + i * kLanesPerRow, rest = chunk - 2 * kTurnedPairs;
    const bool is_turned = rest < 0, is_second = is_turned ? chunk >= kTurnedPairs : rest >= kOtherPairs;
    const int lane = is_turned ? chunk - is_second * kTurnedPairs : kTurnedPairs + rest - is_second * kOtherPairs;
    const float first = __shfl_sync(kFullWarp, sums[0], lane, kLanesPerRow);
    const float second = __shfl_sync(kFullWarp, sums[1], lane, kLanesPerRow);
    sorted[i] = chunk >= kChunks ? 0.0f : is_second ? second : first;
  }
  JITNORM_UNROLL
  for (int i = 0; i < 2; ++i) sums[i] = sorted[i];
}
#endif
