// A table of an activation in shared memory, in which threads look up the values of bfloat16 by their bits. The
// magnitudes in it are those from kLeastTabulated up to kEndTabulated; a chunk that has others is computed.
#pragma once

#include "../common/activation.h"
#include "magnitudes.cuh"

#ifdef JITNORM_TABULATES
// Of each magnitude, the activation of the positive value and that of the negative one.
JITNORM_INLINE float* activation_table() {
  __shared__ float table[2 * (kEndTabulated - kLeastTabulated)];
  return table;
}

// Fills the table, for all threads of a block.
JITNORM_INLINE void fill_table() {
  constexpr int kSize = 2 * (kEndTabulated - kLeastTabulated);
  for (int i = threadIdx.x; i < kSize; i += kThreads) {
    const UInt32 magnitude = (UInt32)(kLeastTabulated + i / 2);
    activation_table()[i] = activated<kActivation>(float_of((UInt32)i << 31 | magnitude << 16));
  }
  __syncthreads();
}

// Where the table has the activations of a pair, in bytes: eight per magnitude, and four for a sign. Both are found at
// once, modulo 2^16, which is more than the table has. What a half shifts into the other, or borrows from it, ends in
// the three lowest bits.
JITNORM_INLINE UInt32 places_of_pair(UInt32 pair) {
  constexpr UInt32 kLeast = (UInt32)kLeastTabulated * 8 % 0x10000u;
  static_assert(8 * (kEndTabulated - kLeastTabulated) <= 0x10000);
  return ((pair * 8 - kLeast * 0x10001u) & 0xfff8fff8u) | (pair >> 13 & 0x00040004u);
}

JITNORM_INLINE float activation_at(UInt32 place) {
  return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(activation_table()) + place);
}

JITNORM_INLINE UInt32 magnitude_bits(float x) { return bits_of(magnitude_of(x)) >> 16; }

// Looks up a chunk with values below the least in the table; false if not all of these are zeros, which are their own
// activations. If such chunks were computed, GELU to FP8 of 8192 x 4096, with one zero in a hundred values, would take
// 1.18 times as long as without a table, not 0.95. If other values were looked for first, the usual path would lack
// registers: GELU times values to NVFP4 of 8192 x 6656 would take 0.91 of that time, not 0.76.
template <int kAccessBytes>
JITNORM_INLINE bool look_up_with_zeros(const Chunk<BFloat16, kAccessBytes>& x, float (&result)[kChunkSize]) {
  bool are_there = true;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    const float value = value_of(x, i);
    const int magnitude = (int)magnitude_bits(value), distance = magnitude - kLeastTabulated;
    are_there &= distance >= 0 || magnitude == 0;
    const float found = activation_at((UInt32)max(distance, 0) * 8 + (bits_of(value) >> 29 & 4u));
    result[i] = magnitude == 0 ? value : found;
  }
  return are_there;
}

// Looks up the activations of a chunk; false if not all of them are known, or a warp has others.
template <int kAccessBytes>
JITNORM_INLINE bool look_up(const Chunk<BFloat16, kAccessBytes>& x, float (&result)[kChunkSize]) {
  const auto pair_at = [&](int i) { return x.words[i]; };
  const UInt32 largest = largest_magnitudes(pair_at);
  if (!holds_for_warp(are_below(largest, kEndTabulated))) return false;
  if (largest == 0) {  // as past a row
    values_of(x, result);
    return true;
  }
  if (!are_not_below(smallest_magnitudes(pair_at), kLeastTabulated)) return look_up_with_zeros(x, result);
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize / 2; ++i) {
    const UInt32 places = places_of_pair(x.words[i]);
    result[2 * i] = activation_at(places & 0xffffu);
    result[2 * i + 1] = activation_at(places >> 16);
  }
  return true;
}
#endif
