// The rotation of a head whose chunks the lanes of a warp have, one each.
#pragma once

#include "../common/rotation.h"
#include "chunks.cuh"

#ifdef JITNORM_ROTATES
// Elements up to kRotarySize are turned two by two: whether element i is the first of the two, and their angle.
JITNORM_INLINE bool is_first_of_two(int i) { return kTurnsHalves ? i < kAngles : i % 2 == 0; }
JITNORM_INLINE int angle_of(int i) { return kTurnsHalves ? i % kAngles : i / 2; }

// The value `from` lanes further, of another lane of the row.
JITNORM_INLINE float value_from(float value, int from) {
  return __shfl_sync(kFullWarp, value, threadIdx.x % 32 + from);
}

// What each element of a chunk is turned with, if it is turned. Every lane of the warp takes part.
JITNORM_INLINE void find_others(const float (&y)[kChunkSize], int index, float (&others)[kChunkSize]) {
  constexpr int kLanesApart = kAngles / kChunkSize, kRest = kAngles % kChunkSize;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    const bool is_first = is_first_of_two(index * kChunkSize + i);
    if constexpr (!kTurnsHalves) {
      others[i] = y[i ^ 1];
    } else if constexpr (kRest == 0) {
      others[i] = value_from(y[i], is_first ? kLanesApart : -kLanesApart);
    } else {
      const int after = i + kRest, before = i - kRest + kChunkSize;
      const float second = value_from(y[after % kChunkSize], kLanesApart + after / kChunkSize);
      const float first = value_from(y[before % kChunkSize], before / kChunkSize - 1 - kLanesApart);
      others[i] = is_first ? second : first;
    }
  }
}

// The angles of a chunk, of each of its elements or of each pair, in runs that lie side by side in the table.
struct ChunkAngles {
  static constexpr int kRuns = (kTurnsHalves ? kChunkSize : kChunkSize / 2) / kAnglesInRun;
  static constexpr int kRunElements = kChunkSize / kRuns;
  Angle cosines[kRuns][kAnglesInRun], sines[kRuns][kAnglesInRun];
  bool are_known;

  JITNORM_INLINE void load(const Arguments& a, Int64 row, int index) {
    const Angle* angles = angles_of_row(a, row);
    are_known = angles != nullptr;
    JITNORM_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      const int element = index * kChunkSize + r * kRunElements;
      if (!are_known || element >= kRotarySize) continue;
      load_array<kAnglesAccessBytes>(cosines[r], angles + angle_of(element));
      load_array<kAnglesAccessBytes>(sines[r], angles + kAngles + angle_of(element));
    }
  }

  JITNORM_INLINE void turn(float (&y)[kChunkSize], int index) const {
    float others[kChunkSize];
    find_others(y, index, others);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const int element = index * kChunkSize + i;
      const int run = i / kRunElements, place = i % kRunElements * kAnglesInRun / kRunElements;
      if (element >= kRotarySize) {
        y[i] = unturned(y[i]);
        continue;
      }
      const float cosine = are_known ? to_float(cosines[run][place]) : no_angle();
      const float sine = are_known ? to_float(sines[run][place]) : no_angle();
      y[i] = turned(y[i], others[i], cosine, is_first_of_two(element) ? -sine : sine);
    }
  }
};
#endif
