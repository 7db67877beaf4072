// Where the scale of row m, block column k is stored, kScaleColumns columns a row.
JITNORM_INLINE Int64 linear_offset(Int64 m, int k, Int64 rows) {
  // Column-major: each column's rows are rounded up to what the reader loads at once.
  if (kHasColumnMajorScales) return k * padded_rows(rows) + m;
  return m * kScaleColumns + k;
}

// 128x4: tiles of 128 rows by 4 columns, 512 bytes each, in which row m % 32 comes first, then m / 32, then k.
// 8x4: tiles of 8 rows by 4 columns, row by row.
JITNORM_INLINE Int64 swizzled_offset(Int64 m, int k) {
  constexpr int kTile = kPaddedRowMultiple * 4;
  const Int64 tile = (m / kPaddedRowMultiple) * (kPaddedScaleColumns / 4) + k / 4;
  const int row = (int)(m % kPaddedRowMultiple);
  const int within = kPaddedRowMultiple == 128 ? row % 32 * 16 + row / 32 * 4 : row * 4;
  return tile * kTile + within + k % 4;
}
