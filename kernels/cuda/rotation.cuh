// The rotation of heads whose chunks are in neighbouring lanes of a warp: one chunk per lane at a time, or one of each
// half.
#pragma once

#include "../common/normalize.h"
#include "../common/rotation.h"
#include "chunks.cuh"

#ifdef JITNORM_ROTATES
// Which chunk of its head a chunk of a row is: a row is a head, or several.
JITNORM_INLINE int chunk_of_head(int index) {
  return kHeadSize < kHiddenSize ? index % ((kHeadSize + kChunkSize - 1) / kChunkSize) : index;
}

// Elements up to kRotarySize are rotated in pairs: whether element i is the first of a pair, and the pair's angle.
JITNORM_INLINE bool is_first_of_two(int i) { return kTurnsHalves ? i < kAngles : i % 2 == 0; }
JITNORM_INLINE int angle_of(int i) { return kTurnsHalves ? i % kAngles : i / 2; }

// Whether a chunk is rotated as a whole, and whether its elements are all first or all second elements of pairs.
constexpr bool kTurnsWholeChunks = kRotarySize % kChunkSize == 0;
constexpr bool kHalvesAreChunks = kTurnsHalves && kAngles % kChunkSize == 0;

// The value of another lane of the row, `from` lanes further.
JITNORM_INLINE float value_from(float value, int from) {
  return __shfl_sync(kFullWarp, value, threadIdx.x % 32 + from);
}

// The partner of each rotated element of a chunk. Every lane of the warp takes part.
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

// Angles that are contiguous in the table, and the words that they are loaded as.
union AngleRun {
  Angle elements[kAnglesInRun];
  UInt32 words[(kAnglesInRun * sizeof(Angle) + 3) / 4];
};

// Element i, widened, as value_of() of a chunk.
JITNORM_INLINE float angle_at(const AngleRun& run, int i) {
  if constexpr (sizeof(Angle) == 2 && kAnglesInRun % 2 == 0) {
    Chunk<Angle, 4> pair;
    pair.words[0] = run.words[i / 2];
    return value_of(pair, i % 2);
  }
  return to_float(run.elements[i]);
}

// The angles of a chunk of a head, of each of its elements or of each pair, in runs.
struct ChunkAngles {
  static constexpr int kRuns = (kTurnsHalves && !kSplitsHeads ? kChunkSize : kHalf) / kAnglesInRun;
  static constexpr int kRunElements = kChunkSize / kRuns;
  static constexpr UInt32 kSigns = sizeof(Angle) == 2 ? 0x80008000u : 0x80000000u;
  static constexpr int kWords = (kAnglesInRun * sizeof(Angle) + 3) / 4;
  const Position* place;  // where the position of the row's token is
  Int64 position;
  bool is_known;
  AngleRun cosines[kRuns], sines[kRuns];  // if halves are whole chunks, the sines of first elements have their sign

  JITNORM_INLINE void locate(const Arguments& a, Int64 row) { place = a.positions + token_of_row(a, row); }

  JITNORM_INLINE void find(const Arguments& a) {
    position = *place;
    is_known = is_in_table(a, position);
  }

  // Zero, but only once the position has arrived.
  JITNORM_INLINE Int64 arrival() const { return is_known ? position >> 63 : 0; }

  // Requests the angles of a position that was found.
  JITNORM_INLINE void load(const Arguments& a, int index) {
    if constexpr (kHoldsHalves) leave_undefined();
    const Angle* angles = angles_at(a, position);
    JITNORM_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      const int element = index * (kSplitsHeads ? kHalf : kChunkSize) + r * kRunElements;
      if (is_known && element < (kSplitsHeads ? kAngles : kRotarySize)) {
        load_array<kAnglesAccessBytes>(cosines[r].elements, angles + angle_of(element));
        load_array<kAnglesAccessBytes>(sines[r].elements, angles + kAngles + angle_of(element));
      }
    }
#ifdef JITNORM_FREQUENCIES
    turn_by_frequencies();
#endif
    // If a lane holds both halves, normalized heads at an unknown position become NaN through their statistic.
    if constexpr (!kHoldsHalves || !kNormalizes) {
      if (!is_known) forget();
    }
    if constexpr (kHalvesAreChunks && !kHoldsHalves) {
      const UInt32 signs = is_first_of_two(index * kChunkSize) ? kSigns : 0u;
      JITNORM_UNROLL
      for (UInt32& word : sines[0].words) word ^= signs;
    }
  }

#ifdef JITNORM_FREQUENCIES
  // Replaces the words of frequencies by what they give.
  JITNORM_INLINE void turn_by_frequencies() {
    JITNORM_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      JITNORM_UNROLL
      for (int i = 0; i < kAnglesInRun; ++i) {
        const Turn turn = turn_of(position, cosines[r].words[i], sines[r].words[i]);
        cosines[r].elements[i] = turn.cosine, sines[r].elements[i] = turn.sine;
      }
    }
  }
#endif

  // Otherwise the compiler sets the angles of unknown positions to zero before it loads others.
  JITNORM_INLINE void leave_undefined() {
    JITNORM_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      JITNORM_UNROLL
      for (int i = 0; i < kWords; ++i) asm volatile("" : "=r"(cosines[r].words[i]), "=r"(sines[r].words[i]));
    }
  }

  // NaN in any type. The barrier keeps this a branch that is normally not taken.
  JITNORM_INLINE void forget() {
    JITNORM_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      JITNORM_UNROLL
      for (int i = 0; i < kWords; ++i) {
        cosines[r].words[i] = sines[r].words[i] = 0x7fff7fffu;
        asm volatile("" : "+r"(cosines[r].words[i]), "+r"(sines[r].words[i]));
      }
    }
  }

  // Half a chunk of the first half, and the one that it is rotated with.
  JITNORM_INLINE void turn_halves(float (&y)[kChunkSize]) const {
    JITNORM_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const float a = y[i], b = y[i + kHalf], cosine = angle_at(cosines[0], i), sine = angle_at(sines[0], i);
      y[i] = turned(a, b, cosine, -sine);
      y[i + kHalf] = turned(b, a, cosine, sine);
    }
  }

  // A chunk of the first half, and the one that it is rotated with, or two others.
  JITNORM_INLINE void turn(float (&first)[kChunkSize], float (&second)[kChunkSize], bool is_turned) const {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const float a = first[i], b = second[i], cosine = angle_at(cosines[0], i), sine = angle_at(sines[0], i);
      first[i] = is_turned ? turned(a, b, cosine, -sine) : unturned(a);
      second[i] = is_turned ? turned(b, a, cosine, sine) : unturned(b);
    }
  }
  JITNORM_INLINE void turn(float (&y)[kChunkSize], int index) const {
    if constexpr (kSplitsHeads) {
      turn_halves(y);
      return;
    }
    float others[kChunkSize];
    find_others(y, index, others);
    const bool is_turned = index * kChunkSize < kRotarySize;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const int element = index * kChunkSize + i;
      const int run = i / kRunElements, place = i % kRunElements * kAnglesInRun / kRunElements;
      const float sine = angle_at(sines[run], place);
      const float signed_sine = !kHalvesAreChunks && is_first_of_two(kTurnsHalves ? element : i) ? -sine : sine;
      const float value = turned(y[i], others[i], angle_at(cosines[run], place), signed_sine);
      if constexpr (kRotarySize >= kHeadSize) {
        y[i] = value;
      } else {
        y[i] = (kTurnsWholeChunks ? is_turned : element < kRotarySize) ? value : unturned(y[i]);
      }
    }
  }
};
#endif
