// The schedule that loads rows ahead: blocks stay, as many as run at once: while one works on a row, its
// next is on its way to shared memory. Each thread copies the chunks that it will load itself, so nobody has to wait
// for another thread's.
#pragma once

#include "rows.cuh"

constexpr int kStagedBytes = 16;
static_assert(kHoldsRow && kRowsAtOnce == 1 && kRowsPerBlock == 1 && kBlocksPerRow == 1 && kNormalizes);
static_assert(kHiddenSize % kChunkSize == 0, "chunks are copied whole");

JITNORM_INLINE Input* staged_row() {
  extern __shared__ uint4 staged[];
  return reinterpret_cast<Input*>(staged);
}

// Begins to copy a chunk of a row, if there is such a chunk.
JITNORM_INLINE void copy_chunk_ahead(const Source& source, int index) {
  if (index >= kChunks) return;
  Input* to = staged_row() + index * kChunkSize;
  source.visit_loaded([&](const Input* row) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kStagedBytes / (int)sizeof(Input)) {
      const UInt32 address = (UInt32)__cvta_generic_to_shared(to + i);
      const Input* from = row + index * kChunkSize + i;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
    }
    to += kHiddenSize;
  });
}

// Begins to copy the thread's chunks of a row.
JITNORM_INLINE void copy_ahead(const Source& source, int thread) {
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) copy_chunk_ahead(source, thread + j * kThreadsPerRow);
}

JITNORM_INLINE Row take_staged(const Arguments& a, Int64 number, int thread) {
  asm volatile("cp.async.wait_all;" ::: "memory");
  Row row{number, true, Source::of(a, number).staged(staged_row()), thread};
  if constexpr (!kStaysShared) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunkSlots; ++j) row.source.load(row.held[j], row.index(j));
  }
  return row;
}

template <typename ArgumentsOf>
JITNORM_INLINE void process_rows_ahead(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  const int thread = thread_of_row(), lane = thread % 32, warp = thread / 32;
  Int64 number = row_block();
  const Int64 stride = row_blocks();
  if (number >= visited_rows(a.rows)) return;
  wait_for_inputs();
  const float given = RowEncoder::given(a);
  if (number < a.rows) copy_ahead(Source::of(a, number), thread);
  Rows of;
  if constexpr (kPrefetchesWeight) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) of.parameters[j].load(a, thread + j * kThreadsPerRow);
  }
  const RowEncoder::CallScale call = RowEncoder::prepare(a, given);
  for (; number < a.rows; number += stride) {
    of.rows[0] = take_staged(a, number, thread);
    const bool is_last = number + stride >= a.rows;
    if (is_last) launch_dependents();
    find_statistics(a, of, warp, lane);
    const Source next = Source::of(a, is_last ? number : number + stride);
    // The statistic waited for all that was loaded.
    if (!kStaysShared && !is_last) copy_ahead(next, thread);
    finish_rows(a, of, call, thread, warp, lane, [&](int index) {
      if (kStaysShared && !is_last) copy_chunk_ahead(next, index);
    });
    row_barrier();  // the next row takes the same shared memory
  }
  for (; number < visited_rows(a.rows); number += stride) RowEncoder::write_padding_row(a, number, thread);
}
