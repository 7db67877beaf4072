// Ops on independent items that move elements and do not look into them.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rows.h"
#include "scale_layout.h"

#ifdef __CUDACC__
// A warp has up to 16 neighbouring scales of the rows that lie together in a tile: they fill sectors, both where they
// are loaded and where they are stored.
JITNORM_INLINE void locate_quad(Int64 item, Int64& padded_row, int& column) {
  constexpr int kQuads = kPaddedScaleColumns / 4, kNeighbours = kQuads % 4 == 0 ? 4 : kQuads % 2 == 0 ? 2 : 1;
  constexpr int kStrips = kQuads / kNeighbours;  // of columns
  const Int64 place = item / kNeighbours, strip = place / kPaddedRowMultiple;
  const int quad = (int)(strip % kStrips) * kNeighbours + (int)(item % kNeighbours);
  const int within = (int)(place % kPaddedRowMultiple);
  column = 4 * quad;
  padded_row = strip / kStrips * kPaddedRowMultiple + within % 4 * 32 + within / 4;
}
#else
JITNORM_INLINE void locate_quad(Int64 item, Int64& padded_row, int& column) {
  constexpr int kQuads = kPaddedScaleColumns / 4;
  padded_row = item / kQuads;
  column = (int)(item % kQuads) * 4;
}
#endif

// An item is four neighbouring scales of a row in the swizzled layout, each matrix of a batch padded for itself.
JITNORM_INLINE void interleave_item(const Arguments& a, Int64 item) {
  Int64 padded_row;
  int column;
  locate_quad(item, padded_row, column);
  const Int64 matrix = kRowSets == RowSets::kMatrices ? padded_row / padded_rows(a.rows) : 0;
  const Int64 row = padded_row - matrix * padded_rows(a.rows);
  Input scales[4] = {};
  if (row < a.rows) {
    const Input* from = a.input + row_offset(matrix * a.rows + row, a.extents, a.input_strides) + column;
    if constexpr (kScaleColumns % 4 == 0) {
      load_array<(kInputAccessBytes < kOutAccessBytes ? kInputAccessBytes : kOutAccessBytes)>(scales, from);
    } else {
      JITNORM_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (column + i < kScaleColumns) scales[i] = from[i];
      }
    }
  }
  store_array<kOutAccessBytes>(a.out + swizzled_offset(padded_row, column), scales);
}

// An item is a chunk of a row in its new place. Each block of rows is read as rows of `kParts` and written by columns:
// eight rows that an epilogue tile stores together then lie together.
JITNORM_INLINE void shuffle_item(const Arguments& a, Int64 item) {
  constexpr int kParts = kShuffleRows / 8;
  const Int64 row = item / kChunks;
  const int index = (int)(item % kChunks), within = (int)(row % kShuffleRows);
  const Int64 source = row - within + within % 8 * kParts + within / 8;
  const Input* from = a.input + row_offset(source, a.extents, a.input_strides) + index * kChunkSize;
  Input* to = a.out + row_offset(row, a.extents, a.out_strides) + index * kChunkSize;
  if (index < kHiddenSize / kChunkSize) {
    alignas(16) Input chunk[kChunkSize];
    load_array<kInputAccessBytes>(chunk, from);
    store_array<kOutAccessBytes>(to, chunk);
  } else {
    for (int i = 0; i < kHiddenSize % kChunkSize; ++i) to[i] = from[i];
  }
}
