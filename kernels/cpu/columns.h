// Items that are blocks of columns. Neighbours are processed together, as many as a vector register has floats.
#pragma once

#include "../common/dequantize.h"
#include "../common/items.h"
#include "transpose.h"

template <typename ProcessItems>
JITNORM_INLINE void process_columns(Int64 first, Int64 last, ProcessItems process_items) {
  while (first < last) {
    if (last - first >= kLanes && kHiddenSize - first % kHiddenSize >= kLanes) {
      process_items(first, Columns<kLanes>{});
      first += kLanes;
    } else {
      process_items(first++, Columns<1>{});
    }
  }
}

// The values of as many blocks, by rows.
template <int kColumns>
JITNORM_INLINE void dequantize_column_items(const Arguments& a, Int64 item, Columns<kColumns>) {
  constexpr int kBlockBytes = kBlockSize * kCodeBits / 8;
  const Int64 block = item / kHiddenSize;
  const int column = (int)(item % kHiddenSize);
  const float global_scale = global_scale_at(a, block);
  float scales[kColumns];
  JITNORM_LANES
  for (int k = 0; k < kColumns; ++k) scales[k] = value_of_scale(a.block_scale[item + k]);
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const Int64 row = block * kBlockBytes + i * kCodeBits / 8;
    const UInt8* codes = a.codes + row_offset(row, a.extents, a.codes_strides) + column;
    Output* to = a.out + (block * kBlockSize + i) * kHiddenSize + column;
    UInt32 of_row[kColumns];
    spread_bytes(codes, of_row);
    Output results[kColumns];
    JITNORM_LANES
    for (int k = 0; k < kColumns; ++k) {
      const DecodeContext context = {scales[k], global_scale};
      rescale_to(results[k], value_of_code<kElement>(of_row[k] >> (i * kCodeBits % 8)), context, 0);
    }
    JITNORM_LANES
    for (int k = 0; k < kColumns; ++k) to[k] = results[k];
  }
}
