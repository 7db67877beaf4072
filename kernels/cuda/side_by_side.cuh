// Rows side by side of which something is found, though warps have parts of them. Each lane leaves what it knows of its
// row in shared memory; once all lanes have, every four neighbouring ones fold it, each a quarter.
#pragma once

#include "../common/normalize.h"
#include "folds.cuh"
#include "row_sharing.cuh"

constexpr bool kLiesSideBySide = (kNormalizes || kNeedsRowAmax) && 32 % kLanesPerRow != 0;
constexpr int kFoldingLanes = 4, kQuarter = 32 / kFoldingLanes;

// A row's chunk sums in shared memory, by groups: first those that the first folding lane takes, every fourth.
template <int kSums>
JITNORM_INLINE float* left_sums(int which) {
  __shared__ alignas(16) float sums[kSums][kRowsPerBlock][kPaddedGroups * 32];
  return sums[which][row_of_block()];
}

template <int kSums>
JITNORM_INLINE float* left_sum(int which, int chunk) {
  return left_sums<kSums>(which) + chunk / 32 * 32 + chunk % kFoldingLanes * kQuarter + chunk % 32 / kFoldingLanes;
}

// The sum of a row; what no lane leaves counts as +0.
template <int kSums>
JITNORM_INLINE float fold_left_sums(int which, int lane) {
  static_assert(kLanesPerRow % kFoldingLanes == 0, "folding lanes are of one row");
  const float* quarter = left_sums<kSums>(which) + lane % kFoldingLanes * kQuarter;
  float groups[kPaddedGroups];
  JITNORM_UNROLL
  for (int g = 0; g < kPaddedGroups; ++g) {
    float of_lane[kQuarter];
    JITNORM_UNROLL
    for (int i = 0; i < kQuarter; ++i) {
      const bool is_left = g * 32 + i * kFoldingLanes < kLanesPerRow * kChunksPerLane;
      of_lane[i] = is_left ? quarter[g * 32 + i] : 0.0f;
    }
    groups[g] = butterfly_sum<kFoldingLanes>(fold_sum(of_lane));
  }
  return fold_sum(groups);
}

// Replaces the largest magnitudes that a thread has seen by those of its rows.
JITNORM_INLINE void side_by_side_max(float (&amax)[kRowsAtOnce], int lane) {
  __shared__ float left[kRowsAtOnce][kRowsPerBlock][kLanesPerRow];
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) left[r][row_of_block()][lane] = amax[r];
  __syncthreads();
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const float* of_row = left[r][row_of_block()];
    JITNORM_UNROLL
    for (int i = 0; i < kLanesPerRow; i += kFoldingLanes) {
      amax[r] = max_magnitude(amax[r], of_row[i + lane % kFoldingLanes]);
    }
    amax[r] = butterfly_max<kFoldingLanes>(amax[r]);
  }
}
