// Where a row starts, in elements: its index written in the mixed radix of the leading dimensions.
JITNORM_INLINE Int64 row_offset(Int64 row, const Int64* extents, const Int64* strides) {
  Int64 offset = 0;
  for (int d = kRowDims - 1; d > 0; --d) {
    offset += row % extents[d] * strides[d];
    row /= extents[d];
  }
  return offset + row * strides[0];
}

// Rows with those that pad the layout of the scales.
JITNORM_INLINE Int64 padded_rows(Int64 rows) {
  return (rows + kPaddedRowMultiple - 1) / kPaddedRowMultiple * kPaddedRowMultiple;
}
