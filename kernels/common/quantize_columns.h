// Quantization along the first dimension: an item is a block of a column, values to codes and their scale. Neighbouring
// items are neighbouring columns, of which the host takes several at once, as vectors.
#pragma once

#include "arguments.h"
#include "block_scale.h"
#include "combine.h"
#include "global_scale.h"
#include "items.h"
#include "rows.h"

// The blocks of as many columns, from that of item `item` on.
template <int kColumns>
JITNORM_INLINE void quantize_column_items(const Arguments& a, Int64 item, Columns<kColumns>) {
  constexpr int kBlockWords = kBlockSize / kCodesPerWord;
  const Int64 block = item / kHiddenSize;
  const int column = (int)(item % kHiddenSize);
  const float scale_of_input = input_scale(a);
  float y[kBlockSize][kColumns], amax[kColumns] = {};
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const Input* from = a.input + row_offset(block * kBlockSize + i, a.extents, a.input_strides) + column;
    JITNORM_LANES
    for (int k = 0; k < kColumns; ++k) {
      y[i][k] = rescaled(to_float(from[k]), scale_of_input);
      amax[k] = max_magnitude(amax[k], y[i][k]);
    }
  }
  const GlobalScale global = prepare_global_scale(a, given_global_scale(a)).global;
  UInt32 stored[kColumns], keep[kColumns], fill[kColumns];
  float encode[kColumns];
  JITNORM_LANES
  for (int k = 0; k < kColumns; ++k) {
    float of_column[kBlockSize];
    JITNORM_UNROLL
    for (int i = 0; i < kBlockSize; ++i) of_column[i] = y[i][k];
    const BlockScale scale = choose_scale<kScaleChoice>(of_column, amax[k], global);
    stored[k] = scale.stored, encode[k] = scale.encode, keep[k] = scale.keep, fill[k] = scale.fill;
  }
  UInt32 words[kBlockWords][kColumns];
  JITNORM_UNROLL
  for (int w = 0; w < kBlockWords; ++w) {
    JITNORM_LANES
    for (int k = 0; k < kColumns; ++k) {
      float of_word[kCodesPerWord];
      JITNORM_UNROLL
      for (int i = 0; i < kCodesPerWord; ++i) of_word[i] = y[w * kCodesPerWord + i][k];
      words[w][k] = (encode_word<kElement>(of_word, encode[k]) & keep[k]) | fill[k];
    }
  }
  JITNORM_LANES
  for (int k = 0; k < kColumns; ++k) a.block_scale[item + k] = (Scale)stored[k];
  JITNORM_UNROLL
  for (int i = 0; i < kBlockWords * 4; ++i) {
    UInt8* codes = a.codes + (block * kBlockWords * 4 + i) * kHiddenSize + column;
    JITNORM_LANES
    for (int k = 0; k < kColumns; ++k) codes[k] = (UInt8)(words[i / 4][k] >> (i % 4 * 8));
  }
}
