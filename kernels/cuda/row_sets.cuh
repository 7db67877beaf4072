// The root of most row-wise kernels: which block works on which rows of which row set.
#pragma once

#include "rows.cuh"

// arguments_of() gives the Arguments of a row set: of the only one, of the first or the second, or of a matrix.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  if constexpr (kRowSets == RowSets::kPair) {  // the first blocks have one, the others the other, none both
    const Int64 first_blocks = blocks_of(arguments_of(false).rows);
    const bool second = row_block() >= first_blocks;
    process_rows(arguments_of(second), row_block() - (second ? first_blocks : 0));
  } else if constexpr (kRowSets == RowSets::kMatrices) {  // a block has rows of one matrix
    const UInt32 blocks = (UInt32)blocks_of(arguments_of(0).rows);
    const UInt32 matrix = row_block() / blocks;
    process_rows(arguments_of(matrix), row_block() - matrix * blocks);
  } else {
    process_rows(arguments_of(), row_block());
  }
}
