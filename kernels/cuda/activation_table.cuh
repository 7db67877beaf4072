// A table of an activation in shared memory, in which threads look up the values of bfloat16 by their bits. The
// magnitudes in it are those from kLeastTabulated up to kEndTabulated. Zeros and larger values need no entry of their
// own; a chunk that has other values is computed.
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

// Where the table has the activations of a pair with the signs of another, in bytes: eight per magnitude, and four for
// a sign. Both are found at once, modulo 2^16, which is more than the table has. What a half shifts into the other, or
// borrows from it, ends in the three lowest bits.
JITNORM_INLINE UInt32 places_of_pair(UInt32 pair, UInt32 signs) {
  constexpr UInt32 kLeast = (UInt32)kLeastTabulated * 8 % 0x10000u;
  static_assert(8 * (kEndTabulated - kLeastTabulated) <= 0x10000);
  return ((pair * 8 - kLeast * 0x10001u) & 0xfff8fff8u) | (signs >> 13 & 0x00040004u);
}

JITNORM_INLINE float activation_at(UInt32 place) {
  return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(activation_table()) + place);
}

// The activation of a value, if it is known, given that of its magnitude's nearest in the table. Zeros are their own,
// as are positive values past the table unless a limit holds them; negative ones have that of the table's end.
JITNORM_INLINE float activation_of_any(float value, float found, bool& is_known) {
  const int bits = (int)bits_of(value);
  is_known &= value == 0.0f || magnitude_of(value) >= float_of((UInt32)kLeastTabulated << 16);
  return value == 0.0f || (!kLimitsGates && bits >= kEndTabulated << 16) ? value : found;
}

// Looks up a chunk with values that the table lacks; false if the activations of some are not known. If larger ones
// were computed, 44 calls with every 509th column times 1000 would take 1.12 times as long on an H200.
template <int kAccessBytes>
JITNORM_INLINE bool look_up_any(const Chunk<BFloat16, kAccessBytes>& x, float (&result)[kChunkSize]) {
  bool are_known = true;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; i += 2) {
    const UInt32 pair = x.words[i / 2];
    const UInt32 most = min_magnitudes((UInt32)(kEndTabulated - 1) * 0x10001u, pair);
    const UInt32 places = places_of_pair(max_magnitudes((UInt32)kLeastTabulated * 0x10001u, most), pair);
    result[i] = activation_of_any(value_of(x, i), activation_at(places & 0xffffu), are_known);
    result[i + 1] = activation_of_any(value_of(x, i + 1), activation_at(places >> 16), are_known);
  }
  return are_known;
}

// Looks up the activations of a chunk; false if not all are known, or if some values would be NaN as float16. Warps go
// one way as a whole. If small values were looked for at once, too, the usual path would lack registers: 44 calls would
// take 1.04 times as long on an H200.
template <int kAccessBytes>
JITNORM_INLINE bool look_up(const Chunk<BFloat16, kAccessBytes>& x, float (&result)[kChunkSize]) {
  const auto pair_at = [&](int i) { return x.words[i]; };
  const UInt32 largest = largest_magnitudes(pair_at);
  if (!holds_for_warp(are_below(largest, kEndTabulated))) {
    return kSettlesInTable && are_below(largest, 0x7c00u) && look_up_any(x, result);
  }
  if (!holds_for_warp(largest == 0 || are_not_below(smallest_magnitudes(pair_at), kLeastTabulated))) {
    return look_up_any(x, result);
  }
  if (largest == 0) {  // as past a row
    values_of(x, result);
    return true;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize / 2; ++i) {
    const UInt32 places = places_of_pair(x.words[i], x.words[i]);
    result[2 * i] = activation_at(places & 0xffffu);
    result[2 * i + 1] = activation_at(places >> 16);
  }
  return true;
}
#endif
