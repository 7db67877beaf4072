// Chunks of a row that are items.
#pragma once

#include "../common/codes.h"
#include "../common/undo_scales.h"

// Bytes, each in a word of its own, with others above it. This loop and the next are as GCC 12 vectorizes them with 256
// and 512 bits; bytes that are widened one by one are stored so, and loading them together as vectors waits.
template <int kCount>
JITNORM_INLINE void spread_bytes(const UInt8* bytes, UInt32 (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = bytes[0];
    return;
  }
  UInt32 words[(kCount + 3) / 4];
  __builtin_memcpy(words, bytes, kCount);
  JITNORM_UNROLL
  for (int half = 0; half + 8 <= kCount; half += 8) {
    const UInt32 low = words[half / 4], high = words[half / 4 + 1];
    JITNORM_LANES
    for (int i = 0; i < 8; ++i) to[half + i] = (i < 4 ? low : high) >> (i % 4 * 8);
  }
}

// The codes of an item, likewise.
JITNORM_INLINE void spread_codes(const UInt8* codes, UInt32 (&to)[kChunkSize]) {
  if constexpr (kCodeBits == 8) {
    spread_bytes(codes, to);
    return;
  }
  UInt32 words[kChunkSize / kCodesPerWord];
  __builtin_memcpy(words, codes, sizeof(words));
  JITNORM_LANES
  for (int i = 0; i < kChunkSize; ++i) to[i] = words[i / kCodesPerWord] >> (i % kCodesPerWord * kCodeBits);
}

// The results of codes, above each of which may be other bits.
template <int kCount, typename Scales>
JITNORM_INLINE void decode_codes(const UInt32 (&codes)[kCount], Output (&results)[kCount], const Scales& scales) {
  JITNORM_LANES
  for (int i = 0; i < kCount; ++i) rescale_to(results[i], value_of_code<kElement>(codes[i]), scales, i);
}

// The results of the codes of an item.
template <int kAccessBytes, typename Scales>
JITNORM_INLINE void decode_item_chunk(const UInt8* codes, Output (&results)[kChunkSize], const Scales& scales) {
  UInt32 spread[kChunkSize];
  spread_codes(codes, spread);
  decode_codes(spread, results, scales);
}

template <int kAccessBytes, typename T>
JITNORM_INLINE void store_item_chunk(T* to, const T (&values)[kChunkSize]) {
  store_array<kAccessBytes>(to, values);
}
