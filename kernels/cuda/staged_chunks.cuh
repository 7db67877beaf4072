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

template <typename StagedChunk>
JITNORM_INLINE void take_chunk(const uint4* from, int lane, StagedChunk& to) {
  constexpr int kAccesses = kAccessesOf<StagedChunk>;
  uint4* accesses = reinterpret_cast<uint4*>(&to);
  const int order = lane / (8 / kAccesses) % kAccesses;  // which place_of_access has for all accesses of a lane
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; ++i) accesses[i] = from[lane * kAccesses + (i ^ order)];
}
