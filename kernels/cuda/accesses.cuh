// Chunks that take several accesses each: the pieces that lanes exchange to store whole chunks together.
#pragma once

#include "chunk.cuh"

// Lanes with neighbouring chunks, as many as a chunk has accesses, exchange these: then, access j of a lane is that of
// the j-th lane's chunk which has the lane's own number.
template <int kAccessBytes, int kWords>
JITNORM_INLINE void exchange_accesses(UInt32 (&words)[kWords], UInt32 mask = kFullWarp) {
  constexpr int kWordsOfAccess = (kAccessBytes + 3) / 4, kAccessesOfWord = 4 / kAccessBytes < 1 ? 1 : 4 / kAccessBytes;
  if constexpr (kAccessesOfWord == 2) {
    const UInt32 order = threadIdx.x % 2 ? 0x3276 : 0x5410;
    JITNORM_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = __byte_perm(words[i], __shfl_xor_sync(mask, words[i], 1), order);
  }
  JITNORM_UNROLL
  for (int distance = kWordsOfAccess; distance < kWords; distance *= 2) {
    const int lanes = distance / kWordsOfAccess * kAccessesOfWord;
    const bool is_upper = threadIdx.x & lanes;
    JITNORM_UNROLL
    for (int i = 0; i < kWords; ++i) {
      if (i & distance) continue;
      UInt32 &lower = words[i], &upper = words[i + distance];
      const UInt32 other = __shfl_xor_sync(mask, is_upper ? lower : upper, lanes);
      lower = is_upper ? other : lower;
      upper = is_upper ? upper : other;
    }
  }
}
