// Quantization along the first dimension: an item is a block of a column, values to codes and their scale. Neighbouring
// items are neighbouring columns.
#pragma once

#include "arguments.h"
#include "block_scale.h"
#include "combine.h"
#include "global_scale.h"
#include "rows.h"

JITNORM_INLINE void quantize_column_item(const Arguments& a, Int64 item) {
  constexpr int kBlockWords = kBlockSize / kCodesPerWord;
  const Int64 block = item / kHiddenSize;
  const int column = (int)(item % kHiddenSize);
  const float scale_of_input = input_scale(a);
  float y[kBlockSize], amax = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const Int64 row = row_offset(block * kBlockSize + i, a.extents, a.input_strides);
    y[i] = rescaled(to_float(a.input[row + column]), scale_of_input);
    amax = max_magnitude(amax, y[i]);
  }
  const GlobalScale global = prepare_global_scale(a, given_global_scale(a)).global;
  const BlockScale scale = choose_scale<kScaleChoice>(y, amax, global);
  a.block_scale[item] = (Scale)scale.stored;
  UInt8* codes = a.codes + block * kBlockWords * 4 * kHiddenSize + column;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockWords; ++i) {
    const UInt32 word = (encode_word<kElement>(y + kCodesPerWord * i, scale.encode) & scale.keep) | scale.fill;
    JITNORM_UNROLL
    for (int j = 0; j < 4; ++j) codes[(4 * i + j) * (Int64)kHiddenSize] = (UInt8)(word >> (8 * j));
  }
}
