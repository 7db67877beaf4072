// Where the scale of row m, block column k is stored, kScaleColumns columns a row.
JITNORM_INLINE Int64 linear_offset(Int64 m, int k) { return m * kScaleColumns + k; }

// 128x4: tiles of 128 rows by 4 columns, 512 bytes each, in which row m % 32 comes first, then m / 32, then k.
JITNORM_INLINE Int64 swizzled_offset(Int64 m, int k) {
  return (m / 128) * (Int64)(kPaddedScaleColumns / 4 * 512) + (k / 4) * 512 + (m % 32) * 16 + (m % 128) / 32 * 4 +
         k % 4;
}
