// Chunks that are copied to shared memory for the lanes of a warp, and read from there without conflicts of banks.
#pragma once

#include "chunks.cuh"

// 16-byte accesses per chunk.
template <typename StagedChunk>
constexpr int kAccessesOf = StagedChunk::kBytes / 16;

// The position of an access among those to the chunks of such lanes. They are permuted so that lanes use different
// banks both when they copy adjacent accesses and when they read their own chunks.
template <int kAccesses>
JITNORM_INLINE int place_of_access(int access) {
  return access ^ access / 8 % kAccesses;
}

// Whether rows of such chunks are at aligned addresses. Otherwise, the last lane's chunk ends in one more access.
template <typename StagedChunk>
constexpr bool kIsAligned = sizeof(StagedChunk::accesses[0]) == 16;

template <typename StagedChunk>
JITNORM_INLINE void take_chunk(const uint4* from, int lane, StagedChunk& to) {
  constexpr int kAccesses = kAccessesOf<StagedChunk>;
  uint4* accesses = reinterpret_cast<uint4*>(&to);
  const int order = lane / (8 / kAccesses) % kAccesses;  // which place_of_access has for all accesses of a lane
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; ++i) accesses[i] = from[lane * kAccesses + (i ^ order)];
}

#ifdef JITNORM_UNALIGNED
// The same for rows that begin `past` bytes behind what was copied; `last` is the access past all chunks.
template <typename StagedChunk>
JITNORM_INLINE void take_shifted_chunk(const uint4* from, const uint4* last, int lane, int past, StagedChunk& to) {
  constexpr int kAccesses = kAccessesOf<StagedChunk>;
  const int order = lane / (8 / kAccesses) % kAccesses, next = (lane + 1) * kAccesses;
  UInt32 loaded[4 * kAccesses + 4];
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; ++i) take_access(from[lane * kAccesses + (i ^ order)], loaded, 4 * i);
  take_access(lane + 1 == kLanesPerRow ? *last : from[place_of_access<kAccesses>(next)], loaded, 4 * kAccesses);
  shift_words<sizeof(StagedChunk::accesses[0])>(loaded, past, to.words);
}
#endif
