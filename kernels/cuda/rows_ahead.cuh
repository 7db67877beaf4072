// The schedule that loads rows ahead, with as many persistent blocks as run at once: while one works on a row, its next
// is being copied to shared memory. Each thread copies the chunks that it will load itself, so no thread waits for
// another's.
#pragma once

#include "rows.cuh"

constexpr int kCopiedBytes = 16;
static_assert(kHoldsRow && kRowsAtOnce == 1 && kBlocksPerRow == 1 && kNormalizes);
static_assert(kHiddenSize % kChunkSize == 0, "chunks are copied whole");

// Where a row of the block is copied to.
JITNORM_INLINE Input* staged_row() {
  extern __shared__ uint4 staged[];
  return reinterpret_cast<Input*>(staged + row_of_block() * (kStagedBytes / 16));
}

// Begins to copy a chunk of a row, if there is such a chunk.
JITNORM_INLINE void copy_chunk_ahead(const Source& source, int index) {
  if (index >= kChunks) return;
  Input* to = staged_row() + index * kChunkSize;
  source.visit_loaded([&](const Input* row) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kCopiedBytes / (int)sizeof(Input)) {
      const UInt32 address = (UInt32)__cvta_generic_to_shared(to + i);
      const Input* from = row + index * kChunkSize + i;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
    }
    to += kHiddenSize;
  });
}

// Begins to copy the thread's chunks of a row, if there is such a row.
JITNORM_INLINE void copy_ahead(const Arguments& a, Int64 number, int thread) {
  if (number < a.rows) {
    const Source source = Source::of(a, number);
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) copy_chunk_ahead(source, thread + j * kThreadsPerRow);
  }
}

// The row that was copied, once it has arrived.
JITNORM_INLINE Row take_staged(const Arguments& a, Int64 number, int thread) {
  asm volatile("cp.async.wait_all;" ::: "memory");
  Row row{number, true, Source::of(a, number).staged(staged_row()), thread};
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) row.source.load(row.held[j], row.index(j));
  return row;
}

template <typename ArgumentsOf>
JITNORM_INLINE void process_rows_ahead(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  const int thread = thread_of_row(), lane = thread % 32, warp = thread / 32;
  const Int64 blocks = row_blocks(), stride = blocks * kRowsPerBlock;
  Int64 number = row_block() + row_of_block() * blocks;
  wait_for_inputs();
  const auto given = RowEncoder::given(a);
  copy_ahead(a, number, thread);
  Rows of;
  if constexpr (kPrefetchesWeight) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) of.parameters[j].load(a, thread + j * kThreadsPerRow);
  }
#ifdef JITNORM_SHARES_PARAMETERS
  if (row_of_block() == 0) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) of.parameters[0].share(a, thread + j * kThreadsPerRow);
  }
  if constexpr (kRowsPerBlock > 1) __syncthreads();
#endif
  const RowEncoder::CallScale call = RowEncoder::prepare(a, given);
  for (; number < a.rows; number += stride) {
    of.rows[0] = take_staged(a, number, thread);
    const Int64 next = number + stride;
    if (next >= a.rows) launch_dependents();
    find_statistics(a, of, warp, lane, [&] { copy_ahead(a, next, thread); });  // all that this thread read is added up
    finish_rows(a, of, call, thread, warp, lane);
    // The next row's sums use the same shared memory, which other threads have read after two more barriers.
    if constexpr (!kCenters && !kNeedsRowAmax) row_barrier();
  }
#ifdef JITNORM_PADS
  pad_scales(a, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads);
#endif
}
