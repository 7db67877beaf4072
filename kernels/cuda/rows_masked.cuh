// The root of row-wise kernels with a mask: a row set for each matrix of a batch, whose rows a mask counts: those of
// all matrices are shared out among the blocks of a grid that does not grow with them. Such batches have room for many
// more rows than they hold, and most of as many blocks would begin only to end.
#pragma once

#include "rows.cuh"

// Makes `block`, counted from the first one of `matrix`, one of that matrix's own; false if there are not so many.
template <typename ArgumentsOf>
JITNORM_INLINE bool find_block(ArgumentsOf arguments_of, UInt32 matrices, UInt32& matrix, UInt32& block) {
  const UInt32 lane = threadIdx.x % 32;
  for (; matrix < matrices; matrix += 32) {
    const bool is_matrix = matrix + lane < matrices;
    const UInt32 own = is_matrix ? (UInt32)blocks_of(counted_rows(arguments_of(matrix + lane))) : 0;
    UInt32 sum = own;  // with those of the matrices before
    for (int distance = 1; distance < 32; distance *= 2) {
      const UInt32 before = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += before;
    }
    const UInt32 reaching = __ballot_sync(0xffffffffu, sum > block);
    if (reaching != 0) {
      const int first = __ffs((int)reaching) - 1;
      block -= __shfl_sync(0xffffffffu, sum - own, first);
      matrix += first;
      return true;
    }
    block -= __shfl_sync(0xffffffffu, sum, 31);
  }
  return false;
}

template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  wait_for_inputs();
  UInt32 matrix = 0, block = row_block();
  while (find_block(arguments_of, (UInt32)arguments_of(0).matrices, matrix, block)) {
    process_rows(arguments_of(matrix), block);
    row_barrier();  // the next rows take the same shared memory
    block += row_blocks();
  }
}
