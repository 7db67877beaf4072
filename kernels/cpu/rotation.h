// The rotation of the heads of a row in the cache.
#pragma once

#include "../common/rotation.h"
#include "tile.h"

#ifdef JITNORM_ROTATES
JITNORM_INLINE float& element_of(Tile* row, int i) {
  return row[i / kTileSize].at[i % kChunkSize][i % kTileSize / kChunkSize];
}

JITNORM_INLINE void turn_row(const Arguments& a, Int64 row, Tile* y) {
  const Int64 position = a.positions[token_of_row(a, row)];
  const Angle* angles = is_in_table(a, position) ? a.angles + position * a.angles_strides[0] : nullptr;
  const float unknown = float_of(0x7fffffffu);
  for (int head = 0; head < kHiddenSize; head += kHeadSize) {
    for (int j = 0; j < kAngles; ++j) {
      const float cosine = angles ? to_float(angles[j]) : unknown;
      const float sine = angles ? to_float(angles[kAngles + j]) : unknown;
      float& first = element_of(y, head + (kTurnsHalves ? j : 2 * j));
      float& second = element_of(y, head + (kTurnsHalves ? j + kAngles : 2 * j + 1));
      const float turned_first = turned(first, second, cosine, -sine);
      second = turned(second, first, cosine, sine);
      first = turned_first;
    }
    for (int i = head + kRotarySize; i < head + kHeadSize; ++i) element_of(y, i) = unturned(element_of(y, i));
  }
}
#endif
