// Where the scale of row m, block column k is stored, with kScaleColumns columns per row: row-major, column-major,
// packed, swizzled for block-scaled matrix products, or twice.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rows.h"

// Rows of scales of a matrix: one for each row, padding included, or for those that share them.
JITNORM_INLINE Int64 scale_rows(Int64 rows) { return (padded_rows(rows) + kBlockRows - 1) / kBlockRows; }

JITNORM_INLINE Int64 linear_offset(Int64 m, int k, Int64 rows) {
  // Packed: column-major integers of four bytes, one for each of four columns.
  if (kHasPackedScales) return (k / 4 * padded_rows(rows) + m) * 4 + k % 4;
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

// If both layouts are written, `block_scale` is the swizzled one.
JITNORM_INLINE Scale* linear_scales(const Arguments& a) {
  return kHasSwizzledScales ? a.block_scale_unswizzled : a.block_scale;
}

// Packing stores only the exponent of a float32 power of two, which is UE8M0; NaN's is 255 in both.
JITNORM_INLINE void assign_bits(UInt8& scale, UInt32 bits) { scale = (UInt8)(kHasPackedScales ? bits >> 23 : bits); }
JITNORM_INLINE void assign_bits(float& scale, UInt32 bits) { scale = float_of(bits); }

// The row of swizzled scales that a row has.
JITNORM_INLINE Int64 scales_of_row(const Arguments& a, Int64 row) {
#ifdef JITNORM_EXPERTS
  return (UInt32)row + a.rows_to_scales;
#else
  return row;
#endif
}

JITNORM_INLINE void store_scale(const Arguments& a, Int64 row, int column, UInt32 bits) {
  if (kHasSwizzledScales) assign_bits(a.block_scale[swizzled_offset(scales_of_row(a, row), column)], bits);
  if (kHasLinearScales) assign_bits(linear_scales(a)[linear_offset(row, column, a.rows)], bits);
}

// Scales of rows that follow each other in a tile, of four columns.
struct alignas(16) FourRows {
  UInt32 scales[4];
};

struct alignas(8) TwoRows {
  UInt32 scales[2];
};

// Zeroes the scales of all rows that pad the last tiles of a swizzled layout: one row has 127 of them behind it. A
// thread has the same four rows, of which the first may be kept, in each of its tiles.
JITNORM_INLINE void pad_tiles(const Arguments& a, int thread, int threads) {
  constexpr int kFours = (kPaddedRowMultiple + 3) / 4, kStep = kPaddedRowMultiple == 128 ? 32 : 1;
  constexpr int kTiles = kPaddedScaleColumns / 4, kTileBytes = 16 * kFours;
  const int rows = (int)(a.rows % kPaddedRowMultiple), sharing = threads < kFours ? 1 : threads / kFours;
  if (rows == 0) return;
  Scale* tiles = a.block_scale + swizzled_offset(a.rows - rows, 0);
  const bool is_aligned = reinterpret_cast<UInt64>(tiles) % sizeof(FourRows) == 0;
  for (int four = thread % kFours; four < kFours; four += threads) {
    const int first = kStep == 1 ? 4 * four : four;  // of four rows, kStep apart
    const int count = rows <= first ? 0 : (rows - first + kStep - 1) / kStep, kept = count < 4 ? count : 4;
    Scale* scales = tiles + 16 * four;
    // Without a branch in the loop: the blocks that pad for experts have little else to do.
    for (int tile = thread / kFours; is_aligned && tile < kTiles; tile += sharing) {
      FourRows& padded = *reinterpret_cast<FourRows*>(scales + tile * kTileBytes);
      if (kept == 0) padded = FourRows{};
      if (kept % 2 != 0) padded.scales[kept] = 0;
      if (kept == 1 || kept == 2) reinterpret_cast<TwoRows*>(&padded)[1] = TwoRows{};
    }
    for (int tile = thread / kFours; !is_aligned && tile < kTiles; tile += sharing) {
      for (int k = 4 * kept; k < 16; ++k) scales[tile * kTileBytes + k] = Scale{};
    }
  }
}

// Zeroes the scales of all rows that pad the layout.
JITNORM_INLINE void pad_scales(const Arguments& a, int thread, int threads) {
  if constexpr (kHasSwizzledScales) pad_tiles(a, thread, threads);
  const int padding = (int)(padded_rows(a.rows) - a.rows);
  for (int i = thread; kHasColumnMajorScales && i < padding * kPaddedScaleColumns; i += threads) {
    a.block_scale[linear_offset(a.rows + i % padding, i / padding, a.rows)] = Scale{};
  }
}

// Zeroes the padding of row `row`: the columns from `first` on for which `thread` of `threads` is responsible.
JITNORM_INLINE void store_zero_scales(const Arguments& a, Int64 row, int first, int thread, int threads) {
  for (int k = first + thread; k < kPaddedScaleColumns; k += threads) {
    if (kHasSwizzledScales) a.block_scale[swizzled_offset(scales_of_row(a, row), k)] = Scale{};
    if (kHasColumnMajorScales) a.block_scale[linear_offset(row, k, a.rows)] = Scale{};
  }
}
