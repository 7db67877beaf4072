// Chunks as they are sent to other ranks, where memory holds -0 until they arrive.
#pragma once

#include "chunks.cuh"
#include "ranks.cuh"

#ifdef JITNORM_REDUCES
#ifdef JITNORM_DIVIDES
#else
// +0 in place of -0, of elements in a word.
JITNORM_INLINE UInt32 without_negative_zeros(UInt32 word) {
  if constexpr (sizeof(Input) == 2) return word & ~__vcmpeq2(word, kNotYet);
  return word == kNotYet ? 0 : word;
}

JITNORM_INLINE uint4 without_negative_zeros(uint4 words) {
  return {without_negative_zeros(words.x), without_negative_zeros(words.y), without_negative_zeros(words.z),
          without_negative_zeros(words.w)};
}

// Bits, some of which are set if an element of the word has not come: is -0.
JITNORM_INLINE UInt32 missing_of(UInt32 word) {
  constexpr UInt32 kLowBits = sizeof(Input) == 2 ? 0x00010001u : 1u;
  const UInt32 difference = word ^ kNotYet;  // an element of zeros borrows from the bit above
  return (difference - kLowBits) & ~difference & kNotYet;
}

JITNORM_INLINE UInt32 missing_of(uint4 words) {
  return missing_of(words.x) | missing_of(words.y) | missing_of(words.z) | missing_of(words.w);
}

// The bytes of a chunk, as they are sent.
typedef Chunk<Input, 16> SentChunk;
constexpr int kSentAccesses = SentChunk::kBytes / 16;

// Access k of all chunks, then the next, so that the lanes of a warp write and read contiguous memory.
JITNORM_INLINE Int64 place_of(int index, int access) { return ((Int64)access * kChunks + index) * 16; }

// Stores a chunk of a row that another rank awaits, with +0 in place of -0.
JITNORM_INLINE void store_sent(UInt8* row, int index, const SentChunk& chunk) {
  JITNORM_UNROLL
  for (int k = 0; k < kSentAccesses; ++k) {
    store_shared(reinterpret_cast<uint4*>(row + place_of(index, k)), without_negative_zeros(chunk.accesses[k]));
  }
}

#ifdef JITNORM_PASSES_SUMS
// Loads a chunk; returns whether all of it has arrived.
JITNORM_INLINE bool load_sent(SentChunk& chunk, const UInt8* row, int index) {
  UInt32 missing = 0;
  JITNORM_UNROLL
  for (int k = 0; k < kSentAccesses; ++k) {
    chunk.accesses[k] = load_shared(reinterpret_cast<const uint4*>(row + place_of(index, k)));
  }
  JITNORM_UNROLL
  for (int k = 0; k < kSentAccesses; ++k) missing |= missing_of(chunk.accesses[k]);
  return missing == 0;
}
#endif
#endif
#endif
