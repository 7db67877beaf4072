// Stores what threads have summed over the rows of a segment in a row of partial sums. A block folds the sums of its
// packs and, if blocks with a segment each form a cluster, those of its neighbours, so that fewer rows are written, and
// read again by `sum_rows`.
#pragma once

#include "gradient_rows.cuh"
#include "row_reduce.cuh"

typedef Chunk<float, kPartialsAccessBytes> SumChunk;

// Segments of a cluster are as far apart as accumulators that `sum_rows` would fold last.
constexpr int kSegmentDistance = kMostSegments / kFoldedSegments;

JITNORM_INLINE Int64 segment_of_block() {
  if constexpr (kFoldedSegments == 1) return row_block();
  return blockIdx.x / kFoldedSegments + blockIdx.x % kFoldedSegments * kSegmentDistance;
}

#ifdef JITNORM_UNWEIGHTED
// Without parameters, sums for them are unused, so the compiler removes them.
JITNORM_INLINE void store_parameter_sums(const Arguments&, const GradientThread&, int, const ParameterSums&) {}

JITNORM_INLINE void load_parameter_sums(const Arguments&, const GradientThread&, int, ParameterSums&) {}

JITNORM_INLINE void store_segment_sums(const Arguments&, const GradientThread&) {}
#else
JITNORM_INLINE void store_parameter_sums(const Arguments& a, const GradientThread& thread, int j,
                                         const ParameterSums& sums) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    SumChunk chunk;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) round_to(sums.of[p][i], chunk.elements[i]);
    store_chunk_alone(partial_sums(a, thread.segment, p), thread.index(j), chunk);
  }
}

// The sums of rows that are too long for registers to keep them.
JITNORM_INLINE void load_parameter_sums(const Arguments& a, const GradientThread& thread, int j, ParameterSums& sums) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    SumChunk chunk{};
    if (thread.has_sums) load_chunk(chunk, partial_sums(a, thread.segment, p), thread.index(j));
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) sums.of[p][i] = chunk.elements[i];
  }
}

// Accumulators of packs that a thread folds at once.
constexpr int kFoldedPlaces = kRowsPerBlock < 8 ? kRowsPerBlock : 8;
constexpr int kColumnQuads = kThreadsPerRow * kChunksPerLane * kChunkSize / 4;

// Four columns of the accumulators at a place in a pack, in the memory of rows in flight; as with those, lanes use
// different banks.
JITNORM_INLINE float4& shared_sums(int parameter, int place, int quad) {
  extern __shared__ uint4 staged[];
  float4* sums = reinterpret_cast<float4*>(staged) + (parameter * kRowsPerBlock + place) * kColumnQuads;
  return sums[place_of_access<4>(quad)];
}

// The same for a block of the cluster. Nobody writes them anymore, so they need no order with stores to elsewhere.
JITNORM_INLINE float4 sums_of_block(int block, int parameter, int place, int quad) {
  float4& own = shared_sums(parameter, place, quad);
  if constexpr (kFoldedSegments == 1) return own;
  UInt32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"((UInt32)__cvta_generic_to_shared(&own)), "r"(block));
  float4 sums;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(sums.x), "=f"(sums.y), "=f"(sums.z), "=f"(sums.w)
               : "r"(address));
  return sums;
}

// Folds the quads that at(i) returns.
template <int kCount, typename At>
JITNORM_INLINE float4 folded_quads(At at) {
  float columns[4][kCount];
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const float4 quad = at(i);
    columns[0][i] = quad.x, columns[1][i] = quad.y, columns[2][i] = quad.z, columns[3][i] = quad.w;
  }
  return {fold_sum(columns[0]), fold_sum(columns[1]), fold_sum(columns[2]), fold_sum(columns[3])};
}

JITNORM_INLINE void share_sums(const GradientThread& thread) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    JITNORM_UNROLL
    for (int j = 0; j < kHeldSums; ++j) {
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; i += 4) {
        const float* sums = thread.sums[j].of[p] + i;
        shared_sums(p, thread.place, (thread.index(j) * kChunkSize + i) / 4) = {sums[0], sums[1], sums[2], sums[3]};
      }
    }
  }
}

// Folds accumulators of a pack until so few are left that a thread takes them all at once.
JITNORM_INLINE void fold_places() {
  for (int half = kRowsPerBlock / 2; half >= kFoldedPlaces; half /= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < kParameterSums * half * kColumnQuads; i += kThreads) {
      const int quad = i % kColumnQuads, place = i / kColumnQuads % half, p = i / kColumnQuads / half;
      shared_sums(p, place, quad) = folded_quads<2>([&](int k) { return shared_sums(p, place + k * half, quad); });
    }
  }
}

JITNORM_INLINE void store_quad(float* row, int quad, const float4& sums) {
  if (kPartialsAccessBytes == 16) {
    reinterpret_cast<float4*>(row)[quad] = sums;
    return;
  }
  const float columns[4] = {sums.x, sums.y, sums.z, sums.w};
  JITNORM_UNROLL
  for (int c = 0; c < 4; ++c) {
    if (4 * quad + c < kHiddenSize) row[4 * quad + c] = columns[c];
  }
}

// Waits until all threads of the blocks whose sums are folded are here. The others then see what each block has written
// to its own shared memory; a barrier that releases everything would wait until gradients of rows have reached memory.
JITNORM_INLINE void folding_barrier() {
  if constexpr (kFoldedSegments == 1) {
    __syncthreads();
  } else {
    asm volatile(
        "fence.release.sync_restrict::shared::cta.cluster;\n"
        "barrier.cluster.arrive.relaxed.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
  }
}

// Folds the sums of a cluster's threads, and stores them, with adjacent lanes side by side.
JITNORM_INLINE void fold_segment_sums(const Arguments& a, const GradientThread& thread) {
  if constexpr (kStagesRows) asm volatile("cp.async.wait_all;" ::: "memory");  // rows that are not there come, too
  __syncthreads();
  share_sums(thread);
  fold_places();
  folding_barrier();
  const int first = blockIdx.x % kFoldedSegments * kThreads + threadIdx.x;
#pragma unroll 4
  for (int i = first; i < kParameterSums * kColumnQuads; i += kFoldedSegments * kThreads) {
    const int p = i / kColumnQuads, quad = i % kColumnQuads;
    if (4 * quad >= kHiddenSize) continue;
    const float4 sums = folded_quads<kFoldedPlaces * kFoldedSegments>(
        [&](int k) { return sums_of_block(k % kFoldedSegments, p, k / kFoldedSegments, quad); });
    store_quad(partial_sums(a, thread.segment % kSegmentDistance, p), quad, sums);
  }
  if constexpr (kFoldedSegments > 1) end_sharing();
}

JITNORM_INLINE void store_segment_sums(const Arguments& a, const GradientThread& thread) {
  if constexpr (kFoldsSums) {
    fold_segment_sums(a, thread);
  } else if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) store_parameter_sums(a, thread, j, thread.sums[j]);
  }
}
#endif
