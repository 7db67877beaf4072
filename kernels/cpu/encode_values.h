// The encode stage without codes: values rounded to the input's type, or nothing but the largest magnitude of all rows.
#pragma once

#include "../common/rows.h"
#include "tile.h"

struct RowEncoding {
  Output *to, *next;
};

// Threads share the amax of all rows.
JITNORM_INLINE void raise_amax(const Arguments& a, float row_amax) {
  // As integers, magnitudes keep their order, and NaN lies above infinity.
  const UInt32 amax = bits_of(with_positive_nan(row_amax));
  UInt32* largest = reinterpret_cast<UInt32*>(a.amax);
  UInt32 known = __atomic_load_n(largest, __ATOMIC_RELAXED);
  while (amax > known &&
         !__atomic_compare_exchange_n(largest, &known, amax, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

JITNORM_INLINE RowEncoding begin_row(const Arguments& a, Int64 row, float row_amax) {
  if constexpr (kEncoding == Encoding::kAmax) raise_amax(a, row_amax);
  return {a.out + row_offset(row, a.extents, a.out_strides),
          a.out + row_offset(row_after(a, row), a.extents, a.out_strides)};
}

JITNORM_INLINE void encode_tile(const Arguments&, Int64, int t, const Tile& y, RowEncoding encoding) {
  if constexpr (kEncoding == Encoding::kValues) {
    prefetch_tile(encoding.next, t);
    store_tile(y, t, encoding.to);
  }
}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
