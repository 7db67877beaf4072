// Rows: where one starts, which matrix of a batch it belongs to, whether it is processed.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

// Where a row starts, in elements: its index written in the mixed radix of the leading dimensions. The launcher checks
// that 32 bits hold it if there are several: divided by 64 bits, 9 x 1536 queries and keys took 1.17 us, not 1.09.
JITNORM_INLINE Int64 row_offset(Int64 row, const Int64* extents, const Int64* strides) {
  Int64 offset = 0;
  for (int d = kRowDims - 1; d > 0; --d) {
    const UInt32 extent = (UInt32)extents[d], quotient = (UInt32)row / extent;
    offset += (Int64)((UInt32)row - quotient * extent) * strides[d];
    row = quotient;
  }
  return offset + row * strides[0];
}

#ifdef JITNORM_WEIGHTS
// A row of the norm with weight `number`.
JITNORM_INLINE Output* row_by_weight(const Arguments& a, int number, Int64 row) {
  return a.out + (number * a.rows + row) * kHiddenSize;
}
#endif

// The matrix of a batch that a row belongs to.
JITNORM_INLINE Int64 matrix_of(const Arguments& a, Int64 row) {
  return kRowSets == RowSets::kMatrices ? row / a.rows : 0;
}

// Rows, including those that pad the layout of the scales.
JITNORM_INLINE Int64 padded_rows(Int64 rows) {
  return (rows + kPaddedRowMultiple - 1) / kPaddedRowMultiple * kPaddedRowMultiple;
}

#ifdef JITNORM_EXPERTS
// The rows of an expert, which are a matrix.
JITNORM_INLINE Int64 counted_rows(const Arguments& a) { return a.rows; }
#else
// The rows of a matrix that its mask counts; the others and the padding are not touched.
JITNORM_INLINE Int64 counted_rows(const Arguments& a) {
  const Int64 count = *a.mask;
  return count < 0 ? 0 : count < a.rows ? count : a.rows;
}
#endif

#ifdef JITNORM_GATHERS
// The input row that a row is computed from; -1 if there is none, and nothing is written.
JITNORM_INLINE Int64 input_row(const Arguments& a, Int64 row) {
  const Int64 number = a.input_rows[row * a.input_rows_strides[0]];
  return number < 0 || number >= a.input_count ? -1 : number;
}
#endif

#ifdef JITNORM_DIVIDES
JITNORM_INLINE bool is_processed(const Arguments& a, Int64 row) { return row < a.end; }
#else
JITNORM_INLINE bool is_processed(const Arguments& a, Int64 row) {
  if constexpr (kIsMasked) return row < counted_rows(a);
  return row < a.rows;
}
#endif
