// The rotation of the heads of a row in the cache.
#pragma once

#include "../common/rotation.h"
#include "tile.h"

#ifdef JITNORM_ROTATES
JITNORM_INLINE float& element_of(Tile* row, int i) {
  return row[i / kTileSize].at[i % kChunkSize][i % kTileSize / kChunkSize];
}

// The cosine and sine of a pair at a position; NaN if the table, which is null then, has none.
JITNORM_INLINE Turn turn_at(const Angle* angles, Int64 position, int pair) {
  if (!angles) return {float_of(0x7fffffffu), float_of(0x7fffffffu)};
#ifdef JITNORM_FREQUENCIES
  return turn_of(position, bits_of(angles[pair]), bits_of(angles[kAngles + pair]));
#else
  return {to_float(angles[pair]), to_float(angles[kAngles + pair])};
#endif
}

JITNORM_INLINE void turn_row(const Arguments& a, Int64 row, Tile* y) {
  const Int64 position = a.positions[token_of_row(a, row)];
  const Angle* angles = is_in_table(a, position) ? angles_at(a, position) : nullptr;
  for (int head = 0; head < kHiddenSize; head += kHeadSize) {
    for (int j = 0; j < kAngles; ++j) {
      const Turn turn = turn_at(angles, position, j);
      float& first = element_of(y, head + (kTurnsHalves ? j : 2 * j));
      float& second = element_of(y, head + (kTurnsHalves ? j + kAngles : 2 * j + 1));
      const float turned_first = turned(first, second, turn.cosine, -turn.sine);
      second = turned(second, first, turn.cosine, turn.sine);
      first = turned_first;
    }
    for (int i = head + kRotarySize; i < head + kHeadSize; ++i) element_of(y, i) = unturned(element_of(y, i));
  }
}
#endif
