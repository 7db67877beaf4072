// Chunks that take several accesses each: the pieces that lanes exchange to store whole chunks together, and the
// aligned words that one is loaded from.
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

template <int kDropped, int kWords>
JITNORM_INLINE void drop_words_if(bool is_dropped, UInt32 (&words)[kWords]) {
  JITNORM_UNROLL
  for (int i = 0; i + kDropped < kWords; ++i) words[i] = is_dropped ? words[i + kDropped] : words[i];
}

// Loads words from an address that need not be aligned, in aligned accesses of 16 bytes, all of which have some of
// them.
template <int kAccessBytes, int kWords>
JITNORM_INLINE void load_unaligned(UInt32 (&words)[kWords], const void* from) {
  const UInt32 past = (UInt32) reinterpret_cast<UInt64>(from) % 16;  // an aligned address
  const uint4* aligned = reinterpret_cast<const uint4*>(static_cast<const UInt8*>(from) - past);
  UInt32 loaded[kWords + 4] = {};
  JITNORM_UNROLL
  for (int i = 0; i < kWords + 4; i += 4) {
    uint4 access = {};
    if (i < kWords || past != 0) access = aligned[i / 4];
    take_access(access, loaded, i);
  }
  drop_words_if<2>(past & 8, loaded);
  drop_words_if<1>(past & 4, loaded);
  JITNORM_UNROLL
  for (int i = 0; i < kWords; ++i) {
    words[i] = kAccessBytes < 4 ? __funnelshift_r(loaded[i], loaded[i + 1], past % 4 * 8) : loaded[i];
  }
}
