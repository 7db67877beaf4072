// The consecutive rows of experts: where each expert's rows begin, and the tiles of their scales.
#pragma once

#include "scale_layout.h"

#ifdef JITNORM_EXPERTS
// Other kernels compute these: whatever their values, an expert only has rows and scales within the tensors.
struct ExpertOffsets {
  const Int32* rows;    // where each expert's rows begin, followed by where the last one's end
  const Int32* scales;  // the same of rows of scales, in tiles; null if these have none
};

struct ExpertRows {
  Int32 first, count;
};

JITNORM_INLINE Int32 clamped(Int32 x, Int32 least, Int32 most) {
  const Int32 bounded = x < most ? x : most;
  return bounded < least ? least : bounded;
}

// A bound of numbers of 32 bits.
JITNORM_INLINE Int32 as_bound(Int64 most) { return most < 0x7fffffff ? (Int32)most : 0x7fffffff; }

JITNORM_INLINE ExpertRows rows_between(Int32 begin, Int32 end, Int32 most) {
  const Int32 first = clamped(begin, 0, most);
  return {first, clamped(end, first, most) - first};
}

// The first of an expert's tiles of scales, of which the tensor has those of `rows` and one more for each expert.
JITNORM_INLINE UInt32 first_tile(Int32 first_scale, Int32 count, Int32 rows) {
  constexpr UInt32 kRows = kPaddedRowMultiple;
  const UInt32 first = (UInt32)(first_scale < 0 ? 0 : first_scale) / kRows;
  const UInt32 most = ((UInt32)rows + kRows - 1) / kRows + kExperts - ((UInt32)count + kRows - 1) / kRows;
  return first < most ? first : most;
}
#endif
