// The first of two launches that find the largest magnitude of a tensor: persistent blocks, each of which goes through
// rows, several at a time, and writes the largest magnitude that it has seen.
#pragma once

#include "rows.cuh"

#ifdef JITNORM_TENSOR_AMAX
// Over all threads of a block.
JITNORM_INLINE float block_max(float amax) {
  constexpr int kWarps = kThreads / 32;
  __shared__ UInt32 of_warps[kWarps];
  UInt32 bits = __reduce_max_sync(kFullWarp, bits_of(amax));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = bits;
  __syncthreads();
  bits = threadIdx.x % 32 < kWarps ? of_warps[threadIdx.x % 32] : 0;
  return float_of(__reduce_max_sync(kFullWarp, bits));
}

// The largest |y| of the thread's chunks of a row.
JITNORM_INLINE float own_amax(const Arguments& a, Rows& of) {
  float amax = 0.0f;
  visit_chunks(of.rows[0], [&](HeldChunk& h, int j) {
    Parameters& parameters = of.parameters[kPrefetchesWeight ? j : 0];
    if constexpr (!kPrefetchesWeight) parameters.take(a, j, of.rows[0].index(j));
    float y[kChunkSize];
    normalize_chunk(h, parameters, of.rows[0].statistic, y);
    amax = max_magnitude(amax, chunk_amax(y, of.rows[0].index(j)));
  });
  return amax;
}

// Consecutive rows belong to different blocks, so that few rows have all multiprocessors.
template <typename ArgumentsOf>
JITNORM_INLINE void process_amax(ArgumentsOf arguments_of) {
#ifdef JITNORM_TURNS
  const Arguments any = arguments_of(0);
#else
  const Arguments a = arguments_of(), any = a;
#endif
  const int thread = thread_of_row(), lane = threadIdx.x % kLanesPerRow, warp = thread / kLanesPerRow;
  const Int64 blocks = row_blocks(), own = row_block() + threadIdx.x / kThreadsPerRow * blocks;
  wait_for_inputs();
  launch_dependents();
  float amax = 0.0f;
  for (Int64 first = 0; first + row_block() < any.rows; first += blocks * kRowsPerBlock) {
#ifdef JITNORM_TURNS
    const Arguments a = arguments_of((first + own) % kWeightRows);
#endif
    Rows of;
    of.rows[0] = locate_row(a, first + own, thread);
    expect_exchanges();
    await_blocks();
    begin_loading(a, of.rows[0]);
    if constexpr (kPrefetchesWeight && !kLoadsWeightInFlight) load_weights(a, of);
    find_statistics(a, of, warp, lane, [] {});
    amax = max_magnitude(amax, own_amax(a, of));
    if constexpr (kNormalizes && kWarpsPerRow > 1) end_exchanges();
  }
  amax = block_max(amax);
  for (int part = blockIdx.x + threadIdx.x * gridDim.x; part < kAmaxParts; part += kThreads * gridDim.x) {
    any.amax[part] = threadIdx.x == 0 ? amax : 0.0f;
  }
}
#endif
