// An item is four neighbouring scales of a row in the swizzled layout, each matrix of a batch padded for itself.
JITNORM_INLINE void process_item(const Arguments& a, Int64 item) {
  constexpr int kQuads = kPaddedScaleColumns / 4;
  const Int64 padded_row = item / kQuads;
  const int column = (int)(item % kQuads) * 4;
  const Int64 matrix = padded_row / padded_rows(a.rows), row = padded_row % padded_rows(a.rows);
  Input scales[4] = {};
  if (row < a.rows) {
    const Input* from = a.input + row_offset(matrix * a.rows + row, a.extents, a.input_strides);
    JITNORM_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (column + i < kScaleColumns) scales[i] = from[column + i];
    }
  }
  store_array<kOutAccessBytes>(a.out + swizzled_offset(padded_row, column), scales);
}
