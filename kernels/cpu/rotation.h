// The rotation of a head in the cache.
#pragma once

#include "../common/rotation.h"
#include "tile.h"

#ifdef JITNORM_ROTATES
JITNORM_INLINE float& element_of(Tile* row, int i) {
  return row[i / kTileSize].at[i % kChunkSize][i % kTileSize / kChunkSize];
}

JITNORM_INLINE void turn_row(const Arguments& a, Int64 row, Tile* y) {
  const Angle* angles = angles_of_row(a, row);
  for (int j = 0; j < kAngles; ++j) {
    const float cosine = angles ? to_float(angles[j]) : no_angle();
    const float sine = angles ? to_float(angles[kAngles + j]) : no_angle();
    float& first = element_of(y, kTurnsHalves ? j : 2 * j);
    float& second = element_of(y, kTurnsHalves ? j + kAngles : 2 * j + 1);
    const float turned_first = turned(first, second, cosine, -sine);
    second = turned(second, first, cosine, sine);
    first = turned_first;
  }
  for (int i = kRotarySize; i < kHiddenSize; ++i) element_of(y, i) = unturned(element_of(y, i));
}
#endif
