// Square blocks of a matrix, whose values share a scale: their indices are the places of their scales, row by row.
#pragma once

#include "arguments.h"
#include "block_scale.h"
#include "intrinsics.h"
#include "rows.h"
#include "scale_layout.h"

struct Square {
  Int64 row;         // its first, among those of all matrices
  int rows, column;  // how many there are, up to kBlockRows; its first column
};

JITNORM_INLINE Square square_at(const Arguments& a, Int64 number) {
  const Int64 line = number / kScaleColumns, lines = scale_rows(a.rows);
  const Int64 matrix = kRowSets == RowSets::kMatrices ? line / lines : 0;
  const Int64 first = (line - matrix * lines) * kBlockRows, left = a.rows - first;
  return {matrix * a.rows + first, (int)(left < kBlockRows ? left : kBlockRows),
          (int)(number % kScaleColumns) * kBlockSize};
}

// Computes the scale of a block from its amax, and stores it.
JITNORM_INLINE BlockScale scale_of_square(const Arguments& a, Int64 number, float amax, bool is_writer) {
  const BlockScale scale = scale_of<kScaleFormat>(amax, global_scale_from(a, 1.0f));
  if (is_writer) assign_bits(a.block_scale[number], scale.stored);
  return scale;
}
