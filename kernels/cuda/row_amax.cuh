// The largest magnitudes of rows and of their chunks.
#pragma once

#include "row.cuh"
#include "shared_amax.cuh"

// Elements past the row do not count: once normalized, their zeros are NaN if the row's statistic is infinite.
#ifdef JITNORM_SPLITS_CHUNKS
JITNORM_INLINE float chunk_amax(const float (&y)[kChunkSize], int index) {
  float amax = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (is_there(index, i)) amax = max_magnitude(amax, y[i]);
  }
  return amax;
}
#else
// The largest of 16 magnitudes; NaN if one is. Hopper has an instruction for three integers, but not for three floats,
// whose magnitudes are in the order of their bits: 12 instructions, not 15. On an H200, SwiGLU to MXFP8 and to FP8
// groups of 12 drawn shapes take 0.98 and 0.99 of the time, but RMSNorm to MXFP4 1.02.
JITNORM_INLINE float largest_magnitude(const float (&y)[kChunkSize]) {
  float amax = magnitude_of(y[0]);
  if constexpr (kHasMaxOfThree) {
    JITNORM_UNROLL
    for (int i = 1; i < kChunkSize; ++i) amax = max_magnitude(amax, y[i]);
    return amax;
  }
  UInt32 largest = bits_of(max_magnitude(amax, y[1]));
  JITNORM_UNROLL
  for (int i = 2; i < kChunkSize; i += 2) {
    largest = max(largest, bits_of(max_magnitude(magnitude_of(y[i]), y[i + 1])));
  }
  return float_of(largest);
}

JITNORM_INLINE float chunk_amax(const float (&y)[kChunkSize], int index) {
  if constexpr (!kNormalizes) return largest_magnitude(y);
  float amax = magnitude_of(y[0]);
  JITNORM_UNROLL
  for (int i = 1; i < kChunkSize; ++i) {
    const bool counts = !kHasPartialChunk || index * kChunkSize + i < kHiddenSize;
    if (counts) amax = max_magnitude(amax, y[i]);
  }
  return index < kChunks ? amax : 0.0f;
}
#endif

// Whether chunks are unpacked and normalized again to encode them: the floats of more than four would take the
// registers of other blocks. With five chunks in each of 16 lanes, NVFP4 by row of 1280 columns takes 0.89 of the time.
constexpr bool kForgetsNormalized = kChunksPerLane > 4;

// The largest |y| of each row, and of each chunk that is held.
JITNORM_INLINE void find_amax(const Arguments& a, Rows& of, float (&amax)[kRowsAtOnce], int warp, int lane) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    Row& row = of.rows[r];
    amax[r] = 0.0f;
    visit_chunks(row, [&](HeldChunk& h, int j) {
      if (!row.has_chunk(j)) {
        if constexpr (kHoldsRow) row.amax[j] = 0.0f;
        return;
      }
      Parameters& parameters = of.parameters[kPrefetchesWeight ? j : 0];
      if constexpr (!kPrefetchesWeight) parameters.take(a, j, row.index(j));
      float y[kChunkSize];
      normalize_chunk(h, parameters, row.statistic, y);
      keep_normalized(h, y);
      const float of_chunk = chunk_amax(y, row.index(j));
#ifdef JITNORM_BLOCKS_CROSS_WARPS
      share_chunk_amax(r, j, row.index(j), of_chunk);
#else
      if constexpr (kHoldsRow) row.amax[j] = of_chunk;
#endif
      amax[r] = max_magnitude(amax[r], of_chunk);
      if constexpr (kForgetsNormalized) forget_unpacked(h);
    });
  }
  row_max(amax, of.turn, warp, lane);
#ifdef JITNORM_BLOCKS_CROSS_WARPS
  if constexpr (kWarpsPerRow == 1) __syncwarp();  // several warps have met for the amax of the row
#endif
}
