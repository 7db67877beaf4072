// The consecutive rows of experts: where each expert's rows begin, and the padding of their scales.
#pragma once

#include "scale_layout.h"

struct ExpertRows {
  Int32 first, count;
};

JITNORM_INLINE Int32 clamped(Int32 x, Int32 least, Int32 most) { return x < least ? least : x < most ? x : most; }

// A bound of numbers of 32 bits.
JITNORM_INLINE Int32 as_bound(Int64 most) { return most < 0x7fffffff ? (Int32)most : 0x7fffffff; }

// Other kernels compute the offsets: whatever their values, an expert only has rows within the tensor.
JITNORM_INLINE ExpertRows rows_of_expert(const Int32* offsets, Int64 expert, Int64 rows) {
  const Int32 most = as_bound(rows), first = clamped(offsets[expert], 0, most);
  return {first, clamped(offsets[expert + 1], first, most) - first};
}

// The first of its tiles of scales, all of which are within the tensor's `scale_rows`.
JITNORM_INLINE Int64 first_tile_of_expert(const Int32* scale_offsets, Int64 expert, Int32 count, Int64 scale_rows) {
  constexpr UInt32 kRows = kPaddedRowMultiple;
  const UInt32 first = (UInt32)clamped(scale_offsets[expert], 0, 0x7fffffff) / kRows;
  const UInt64 most = (UInt64)scale_rows / kRows - ((UInt32)count + kRows - 1) / kRows;
  return first < most ? first : most;
}
