// Reductions over a row: the tree of cuda/row_reduce.cuh, written as halves folded onto each other.
#pragma once

#include "../common/normalize.h"
#include "tile.h"

template <int kWidth>
JITNORM_INLINE float fold_sum(float (&values)[kWidth]) {
  JITNORM_UNROLL
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = add_rn(values[i], values[i + half]);
  }
  return values[0];
}

// The sum of a row along the tree; add_tile(t, sums) adds the terms of tile t to the sum of each chunk.
template <typename AddTile>
JITNORM_INLINE float tree_sum_of_tiles(AddTile add_tile) {
  constexpr int kGroupTiles = kGroupChunks / kLanes;
  float groups[kPaddedGroups] = {};
  for (int g = 0; g < kGroups; ++g) {
    float sums[kGroupChunks] = {};
    for (int i = 0; i < kGroupTiles; ++i) {
      const int t = g * kGroupTiles + i;
      if (t >= kRowTiles) break;
      add_tile(t, sums + i * kLanes);
    }
    groups[g] = fold_sum(sums);
  }
  return fold_sum(groups);
}

// The sum of a row's terms along the tree; accumulate(sum, t, e, k) adds that of element e of chunk k of tile t.
template <typename Accumulate>
JITNORM_INLINE float tree_sum(Accumulate accumulate) {
  return tree_sum_of_tiles([&](int t, float* sums) {
    for_each_value([&](int e, int k) {
      const float next = accumulate(sums[k], t, e, k);
      sums[k] = kCenters && !is_in_row(t, e, k) ? sums[k] : next;
    });
  });
}

JITNORM_INLINE float row_sum(const Tile* row) {
  return tree_sum([row](float sum, int t, int e, int k) { return add_rn(sum, row[t].at[e][k]); });
}

JITNORM_INLINE float row_sum_of_squares(const Tile* row, float mean) {
  return tree_sum([row, mean](float sum, int t, int e, int k) {
    const float d = centered(row[t].at[e][k], mean);
    return fma_rn(d, d, sum);
  });
}

// The larger of `amax` and the largest magnitude, for each chunk of a tile.
JITNORM_INLINE void raise_to_chunks(const Tile& tile, float (&amax)[kLanes]) {
  for_each_value([&](int e, int k) { amax[k] = max_magnitude(amax[k], tile.at[e][k]); });
}

JITNORM_INLINE float row_max(const Tile* row) {
  float amax[kLanes] = {};
  for (int t = 0; t < kRowTiles; ++t) raise_to_chunks(row[t], amax);
  float largest = 0.0f;
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) largest = max_magnitude(largest, amax[k]);
  return largest;
}
