// The schedule of persistent blocks that keep the parameters of a norm in registers or in shared memory, or a table of
// activations there. While threads work on rows, their next ones are on the way to registers: each thread loads what it
// will use itself, so no thread waits for another's.
#pragma once

#include "rows.cuh"

#ifdef JITNORM_TABULATES
static_assert(kHoldsRow && !kNormalizes && !kNeedsRowAmax);
#else
static_assert(kHoldsRow && kNormalizes);
#endif

// Rows that a thread requests while it works on others.
struct RequestedRows {
  Row rows[kRowsAtOnce];

  JITNORM_INLINE void request(const Arguments& a, Int64 first, int thread) {
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      rows[r] = locate_row(a, first + r, thread);
      begin_loading(a, rows[r]);
    }
  }

  JITNORM_INLINE void take(Rows& of) const {
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) of.rows[r] = rows[r];
  }
};

template <typename ArgumentsOf>
JITNORM_INLINE void process_resident_rows(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  const int thread = thread_of_row(), lane = threadIdx.x % kLanesPerRow, warp = thread / kLanesPerRow;
  const Int64 stride = (Int64)row_blocks() * kRowsOfBlock;
  const int own = kRowsPerBlock == 1 ? 0 : threadIdx.x / kThreadsPerRow * kRowsAtOnce;
  Int64 first_of_block = (Int64)row_block() * kRowsOfBlock;
  expect_exchanges();
  await_blocks();
  wait_for_inputs();
  const auto given = RowEncoder::given(a);
  RequestedRows next;
  next.request(a, first_of_block + own, thread);
  Rows of;
#ifdef JITNORM_TABULATES
  fill_table();
#else
#ifdef JITNORM_COPIES_PARAMETERS
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) Parameters::copy(a, j, thread + j * kThreadsPerRow);
#else
  next.take(of);  // parameters are loaded at the places of its chunks
  load_weights(a, of);
#endif
#endif
  const RowEncoder::CallScale call = RowEncoder::prepare(a, given);
  for (; first_of_block < a.rows; first_of_block += stride, ++of.turn) {
    next.take(of);
    if (first_of_block + stride >= a.rows) launch_dependents();
    next.request(a, first_of_block + stride + own, thread);
    find_statistics(a, of, warp, lane, [] {});
    finish_rows(a, of, call, thread, warp, lane);
  }
#ifdef JITNORM_PADS
  pad_scales(a, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads);
#endif
}
