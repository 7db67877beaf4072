// Quantization in square blocks: an item is one. Its values are loaded twice, the second time from the cache.
#pragma once

#include "../common/squares.h"

// Values of a row of a square block, zeros past the row of the matrix.
JITNORM_INLINE void load_square_row(const Arguments& a, const Square& square, int r, float (&y)[kBlockSize]) {
  const Input* from = a.input + row_offset(square.row + r, a.extents, a.input_strides) + square.column;
  const int left = kHiddenSize - square.column;
  if (kHiddenSize % kBlockSize == 0 || left >= kBlockSize) {
    for (int i = 0; i < kBlockSize; ++i) y[i] = to_float(from[i]);
  } else {
    for (int i = 0; i < kBlockSize; ++i) y[i] = i < left ? to_float(from[i]) : 0.0f;
  }
}

JITNORM_INLINE float square_amax(const Arguments& a, const Square& square) {
  float of_columns[kBlockSize] = {}, amax = 0.0f;
  for (int r = 0; r < square.rows; ++r) {
    float y[kBlockSize];
    load_square_row(a, square, r, y);
    for (int i = 0; i < kBlockSize; ++i) of_columns[i] = max_magnitude(of_columns[i], y[i]);
  }
  for (int i = 0; i < kBlockSize; ++i) amax = max_magnitude(amax, of_columns[i]);
  return amax;
}

JITNORM_INLINE void quantize_square_item(const Arguments& a, Int64 item) {
  const Square square = square_at(a, item);
  const BlockScale scale = scale_of_square(a, item, square_amax(a, square), true);
  const int left = kHiddenSize - square.column;
  for (int r = 0; r < square.rows; ++r) {
    float y[kBlockSize];
    UInt8 codes[kBlockSize];
    load_square_row(a, square, r, y);
    for (int i = 0; i < kBlockSize; ++i) {
      codes[i] = (UInt8)((encode_fp8(y[i], scale.encode) & scale.keep) | (scale.fill & 0xffu));
    }
    UInt8* to = a.codes + row_offset(square.row + r, a.extents, a.codes_strides) + square.column;
    __builtin_memcpy(to, codes, left < kBlockSize ? left : kBlockSize);
  }
}
