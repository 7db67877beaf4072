// Which block works on which rows of which row set.
#pragma once

#include "../common/experts.h"
#include "pages.cuh"
#include "rows.cuh"

// arguments_of() gives the Arguments of a row set: of the only one, of the first or the second, or of a matrix.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  if constexpr (kRowSets == RowSets::kPair) {  // the first blocks have one, the others the other, none both
    const UInt32 first_blocks = (UInt32)blocks_of(arguments_of(false).rows);
#ifdef JITNORM_PAGES
    const UInt32 blocks = first_blocks + (UInt32)blocks_of(arguments_of(true).rows);
    if (row_block() >= blocks) {  // the last ones have values
      insert_values(arguments_of(true), row_block() - blocks);
      return;
    }
#endif
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

#ifdef JITNORM_REDUCES
// Rows whose inputs are summed over ranks, each of which gets those of all.
template <typename ArgumentsOf>
JITNORM_INLINE void process_reduced_rows(ArgumentsOf arguments_of) {
  constexpr int kRows = kRowsPerBlock * kRowsAtOnce;
  const Arguments a = arguments_of();
  wait_for_inputs();
  const UsedSlots used = UsedSlots::of(a);
  process_rows(a, row_block(), [&] { clear_last(a, used, (a.rows + kRows - 1) / kRows); });
  end_block(a, a.rows);
}

#ifdef JITNORM_DIVIDES
// Rows that ranks divide: each sums and encodes its own, for all ranks, once all have come.
template <typename ArgumentsOf>
JITNORM_INLINE void process_divided_rows(ArgumentsOf arguments_of) {
  const Arguments a = with_own_rows(arguments_of());
  Workspace& w = workspace_of(a);
  wait_for_inputs();
  const UInt64 epoch = epoch_of(w), mark = mark_of_divided(a, epoch);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !has_failed(w)) announce(w, Step::kReady, mark);
  clear_last(a, UsedSlots::of(a), row_blocks());
  if (await_others(w, Step::kReady, mark, epoch)) process_rows(a, row_block());
  for (Int64 row = a.rows + row_block(); row < padded_rows(a.rows); row += row_blocks()) {
    RowEncoder::write_padding_row(a, row, thread_of_row());
  }
  finish_together(w, mark, epoch);
  end_block(a, 0);
}
#endif

#ifdef JITNORM_PASSES_SUMS
// Rows that ranks divide to sum them, once all have come; each works on all.
template <typename ArgumentsOf>
JITNORM_INLINE void process_passed_rows(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  Workspace& w = workspace_of(a);
  wait_for_inputs();
  const UInt64 epoch = epoch_of(w), mark = mark_of_places(a, epoch, nullptr);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !has_failed(w)) announce(w, Step::kReady, mark);
  clear_last(a, UsedSlots::of(a), row_blocks());
  const Int64 row = row_at_place(a, row_block());
  if (row < a.rows && await_row(a, row, mark, epoch)) {
    process_rows(a, row, [&] {
      if (is_own_row(a, row)) tell_sum(a, row, mark);
    });
  }
  for (Int64 padding = a.rows + row_block(); padding < padded_rows(a.rows); padding += row_blocks()) {
    RowEncoder::write_padding_row(a, padding, thread_of_row());
  }
  end_block(a, 0);
}
#endif
#endif

#ifdef JITNORM_TURNS
// Rows take turns at kWeightRows parts of the weight; arguments_of() gives the Arguments of those with a part.
template <typename ArgumentsOf>
JITNORM_INLINE void process_rows_in_turn(ArgumentsOf arguments_of) {
  const UInt32 first = row_block() * kRowsPerBlock;
  const UInt32 row = first + (kRowsPerBlock == 1 ? 0 : threadIdx.x / kThreadsPerRow);
  process_rows(arguments_of(row % kWeightRows), row_block());
}
#endif

#ifdef JITNORM_MAPS_STREAMS
#ifdef JITNORM_SUMS_FIRST
// Blocks work on one row after another. Then each thread has the factors for behind the layer of one of these: a thread
// that found them between two rows would have all others of its block wait.
template <typename ArgumentsOf>
JITNORM_INLINE void process_mapped_rows(ArgumentsOf arguments_of) {
  constexpr int kRows = kRowsPerBlock * kRowsAtOnce;
  const Arguments a = arguments_of();
  for (Int64 block = row_block(); block * kRows < a.rows; block += row_blocks()) {
    process_rows(a, block);
    row_barrier();  // the next rows take the same shared memory
  }
  for (int n = thread_of_cluster();; n += kThreads * kBlocksPerRow) {
    const Int64 first = (row_block() + (Int64)(n / kRows) * row_blocks()) * kRows;
    if (first >= a.rows) return;
    if (first + n % kRows < a.rows) write_mixes(a, first + n % kRows, left_rstd(a, first + n % kRows));
  }
}
#else
// The first blocks have the factors for behind the layer, each thread those of a row; the others have rows.
template <typename ArgumentsOf>
JITNORM_INLINE void process_mapped_rows(ArgumentsOf arguments_of) {
  constexpr UInt32 kThreadsOfCluster = kThreads * kBlocksPerRow;
  const Arguments a = arguments_of();
  const UInt32 mixing_blocks = (UInt32)((a.rows + kThreadsOfCluster - 1) / kThreadsOfCluster);
  if (row_block() >= mixing_blocks) {
    process_rows(a, row_block() - mixing_blocks);
    return;
  }
  wait_for_inputs();
  launch_dependents();
  const Int64 row = (Int64)row_block() * kThreadsOfCluster + thread_of_cluster();
  if (row < a.rows) write_mixes(a, row, given_reciprocal_rms(a, row));
}
#endif
#endif

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

// With a mask, which counts the rows of each matrix, those of all matrices are shared out among the blocks of a grid
// that does not grow with them. Such batches have room for many more rows than they hold, and most of as many blocks
// would begin only to end.
template <typename ArgumentsOf>
JITNORM_INLINE void process_counted_rows(ArgumentsOf arguments_of) {
  wait_for_inputs();
  const UInt32 matrices = (UInt32)arguments_of(0).matrices;
  UInt32 matrix = 0, block = row_block();
  bool is_found = find_block(arguments_of, matrices, matrix, block);
  while (is_found) {
    // The next is looked for while these rows are on their way.
    UInt32 next_matrix = matrix, next_block = block + row_blocks();
    bool is_next_found = false, has_looked = false;
    const auto find_next = [&] {
      is_next_found = find_block(arguments_of, matrices, next_matrix, next_block);
      has_looked = true;
    };
    process_rows(arguments_of(matrix), block, find_next);
    if (!has_looked) find_next();
#ifdef JITNORM_EXPERTS
    const Arguments a = arguments_of(matrix);
    if (kHasSwizzledScales && block + 1 == blocks_of(a.rows)) {
      pad_scales(a, thread_of_cluster(), kBlocksPerRow * kThreads);
    }
#endif
    row_barrier();  // the next rows take the same shared memory
    is_found = is_next_found, matrix = next_matrix, block = next_block;
  }
}
