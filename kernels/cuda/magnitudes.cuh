// Bounds for the magnitudes of a chunk of 16-bit values, as pairs. Those in bfloat16 are compared as float16, of which
// Hopper compares six with one instruction: the order of the bits is the same, and what would be NaN is the largest.
#pragma once

#include "chunks.cuh"

JITNORM_INLINE UInt32 magnitudes_of_pair(UInt32 pair) {
  UInt32 result;
  asm("abs.f16x2 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

JITNORM_INLINE UInt32 max_magnitudes(UInt32 magnitudes, UInt32 pair) {
  UInt32 result;
  asm("{\n.reg .b32 m;\nabs.f16x2 m, %2;\nmax.NaN.f16x2 %0, %1, m;\n}" : "=r"(result) : "r"(magnitudes), "r"(pair));
  return result;
}

JITNORM_INLINE UInt32 min_magnitudes(UInt32 magnitudes, UInt32 pair) {
  UInt32 result;
  asm("{\n.reg .b32 m;\nabs.f16x2 m, %2;\nmin.f16x2 %0, %1, m;\n}" : "=r"(result) : "r"(magnitudes), "r"(pair));
  return result;
}

// The largest magnitudes among a chunk's pairs, and the smallest; of NaN, only the former.
template <typename PairAt>
JITNORM_INLINE UInt32 largest_magnitudes(PairAt pair_at) {
  UInt32 largest = magnitudes_of_pair(pair_at(0));
  JITNORM_UNROLL
  for (int i = 1; i < kChunkSize / 2; ++i) largest = max_magnitudes(largest, pair_at(i));
  return largest;
}

template <typename PairAt>
JITNORM_INLINE UInt32 smallest_magnitudes(PairAt pair_at) {
  UInt32 smallest = magnitudes_of_pair(pair_at(0));
  JITNORM_UNROLL
  for (int i = 1; i < kChunkSize / 2; ++i) smallest = min_magnitudes(smallest, pair_at(i));
  return smallest;
}

// Whether both of a pair are below a limit, or neither.
JITNORM_INLINE bool are_below(UInt32 pair, UInt32 limit) { return (pair & 0xffffu) < limit && pair < limit << 16; }
JITNORM_INLINE bool are_not_below(UInt32 pair, UInt32 limit) {
  return (pair & 0xffffu) >= limit && pair >= limit << 16;
}
