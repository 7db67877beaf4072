// Given scales of FP8 or INT8 codes, for rows, columns or blocks: a block has kBlockRows rows (all if that is 0) and
// kBlockSize columns, unless a row has one scale or one for each column.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

#ifdef JITNORM_GIVEN_SCALES
constexpr bool kScalesColumns = kScaleColumns == kHiddenSize;
constexpr int kRowsOfScale = kBlockRows > 0 ? kBlockRows : 1;

// Rows of scales of a matrix.
JITNORM_INLINE Int64 given_scale_rows(Int64 rows) {
  return kBlockRows == 0 ? 1 : (rows + kRowsOfScale - 1) / kRowsOfScale;
}

// The scales of a row of a matrix.
JITNORM_INLINE const float* given_scales_of(const Arguments& a, Int64 row) {
  return a.scale + (kBlockRows == 0 ? 0 : row / kRowsOfScale * kScaleColumns);
}

// The scale that the values of chunk `index` share; 1 past the row.
JITNORM_INLINE float given_scale_at(const float* scales, int index) {
  return index < kChunks ? scales[kScaleColumns == 1 ? 0 : index * kChunkSize / kBlockSize] : 1.0f;
}

// The scale of each of them.
JITNORM_INLINE void load_given_scales(const float* scales, int index, float (&to)[kChunkSize]) {
  if constexpr (!kScalesColumns) {
    const float shared = given_scale_at(scales, index);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) to[i] = shared;
  } else if (index < kHiddenSize / kChunkSize) {
    load_array<kScaleAccessBytes>(to, scales + index * kChunkSize);
  } else {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const int column = index * kChunkSize + i;
      to[i] = column < kHiddenSize ? scales[column] : 1.0f;
    }
  }
}
#endif
