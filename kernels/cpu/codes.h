// Codes of a tile, with one chunk per lane.
#pragma once

#include "../common/codes.h"
#include "tile.h"

constexpr int kChunkWords = kChunkSize / kCodesPerWord;

typedef UInt32 TileCodes[kLanes * kChunkWords];

// An E2M1 code is the lower of two lines. As integers they keep their order, with NaN above them, and GCC recognizes
// the minimum; a minimum of floats may become a comparison and a selection.
JITNORM_INLINE UInt32 lower_of(UInt32 a, UInt32 b) { return a < b ? a : b; }

JITNORM_INLINE UInt32 lane_magnitude_code(float m) {
  const UInt32 below_4 = bits_of(add_rn(m, 0x1p23f - 2.0f));
  const UInt32 above_4 = bits_of(fma_rn(m, 0.5f, 0x1p23f));
  return lower_of(lower_of(below_4, above_4), bits_of(0x1p23f + 3.0f));
}

JITNORM_INLINE UInt32 encode_e2m1_lanes(const float* y, float factor) {
  UInt32 magnitudes = 0, signs = 0;
  JITNORM_UNROLL
  for (int i = kE2M1PerWord - 1; i >= 0; --i) {
    const float m = mul_rn(magnitude_of(y[i]), factor);
    magnitudes = magnitudes * 16u + lane_magnitude_code(m);
    signs = (signs << 4) | (m == m ? bits_of(y[i]) >> 28 : 0u);  // infinity times zero is NaN, whose code is positive
  }
  return (magnitudes - kCodeZero * 0x11111111u) | (signs & 0x88888888u);
}

// A word of the codes of y * factor. No code in E2M1 of a NaN is ever kept: its block is filled with one code.
template <Element kFormat>
JITNORM_INLINE UInt32 encode_lane_word(const float* y, float factor) {
  return encode_word<kFormat>(y, factor);
}

template <>
JITNORM_FORCE_INLINE UInt32 encode_lane_word<Element::kE2M1>(const float* y, float factor) {
  return encode_e2m1_lanes(y, factor);
}

// A chunk's values, which become vectors when this is done in a loop over all chunks of a tile.
JITNORM_INLINE void take_chunk(const Tile& tile, int k, float (&chunk)[kChunkSize]) {
  JITNORM_UNROLL
  for (int e = 0; e < kChunkSize; ++e) chunk[e] = tile.at[e][k];
}

JITNORM_INLINE void store_codes(const TileCodes& codes, int t, UInt8* row) {
  constexpr int kCodesPerByte = kCodesPerWord / 4;
  const int left = kHiddenSize - t * kTileSize;
  UInt8* to = row + t * kTileSize / kCodesPerByte;
  if (kHiddenSize % kTileSize == 0 || left >= kTileSize) {
    __builtin_memcpy(to, codes, sizeof(TileCodes));
  } else {
    __builtin_memcpy(to, codes, left / kCodesPerByte);
  }
}
