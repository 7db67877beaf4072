// Stores what threads have summed over the rows of a segment in a row of partial sums. A block folds the sums of its
// packs and, if it has two segments, of both, or if blocks with a segment each form a cluster, those of its neighbours,
// so that fewer rows are written, and read again by `sum_rows`.
#pragma once

#include "gradient_rows.cuh"
#include "row_reduce.cuh"

typedef Chunk<float, kPartialsAccessBytes> SumChunk;

// Whether blocks that share rows have two segments, one after the other.
constexpr bool kHasTwoSegments = kFoldedSegments > 1 && kBlocksPerRow > 1;
// Blocks of a cluster with a segment each.
constexpr int kFoldedBlocks = kHasTwoSegments ? 1 : kFoldedSegments;
// Segments of a cluster are as far apart as accumulators that `sum_rows` would fold last.
constexpr int kSegmentDistance = kMostSegments / kFoldedSegments;

JITNORM_INLINE Int64 segment_of_block() {
  if constexpr (kFoldedBlocks == 1) return row_block();
  return blockIdx.x / kFoldedBlocks + blockIdx.x % kFoldedBlocks * kSegmentDistance;
}

#ifdef JITNORM_SUMS_GRADIENTS
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
// Threads of a block that share a row, and quads of their columns.
constexpr int kSharingThreads = kThreadsPerRow / kBlocksPerRow;
constexpr int kChunkQuads = kChunkSize / 4, kColumnQuads = kSharingThreads * kChunksPerLane * kChunkQuads;

// Four columns of the accumulators at a place in a pack, in the memory of rows in flight, or behind it if more come;
// as with those, lanes use different banks.
JITNORM_INLINE float4& shared_sums(int parameter, int place, int quad) {
  uint4* memory = kHasTwoSegments ? end_of_staged() : staged_chunks(0, 0, 0, threadIdx.x);
  float4* sums = reinterpret_cast<float4*>(memory) + (parameter * kRowsPerBlock + place) * kColumnQuads;
  return sums[place_of_access<4>(quad)];
}

// The same for a block of the cluster. Nobody writes them anymore, so they need no order with stores to elsewhere.
JITNORM_INLINE float4 sums_of_block(int block, int parameter, int place, int quad) {
  float4& own = shared_sums(parameter, place, quad);
  if constexpr (kFoldedBlocks == 1) return own;
  float4 sums;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(sums.x), "=f"(sums.y), "=f"(sums.z), "=f"(sums.w)
               : "r"(address_in_block(&own, block)));
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

// Calls visit(sums, shared) for each quad of a thread's columns.
template <typename Visit>
JITNORM_INLINE void visit_sums(GradientThread& thread, Visit visit) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    JITNORM_UNROLL
    for (int j = 0; j < kHeldSums; ++j) {
      JITNORM_UNROLL
      for (int q = 0; q < kChunkQuads; ++q) {
        const int chunk = thread.first_chunk % kSharingThreads + j * kSharingThreads;
        visit(thread.sums[j].of[p] + 4 * q, shared_sums(p, thread.place, chunk * kChunkQuads + q));
      }
    }
  }
}

JITNORM_INLINE void share_sums(GradientThread& thread) {
  visit_sums(thread, [](const float* sums, float4& to) { to = {sums[0], sums[1], sums[2], sums[3]}; });
}

// Keeps the sums of the first of two segments, and begins with those of the second.
JITNORM_INLINE void keep_sums(GradientThread& thread) {
  share_sums(thread);
  JITNORM_UNROLL
  for (int j = 0; j < kHeldSums; ++j) thread.sums[j] = {};
  thread.has_sums = true;
}

// Folds the sums of both.
JITNORM_INLINE void add_kept_sums(GradientThread& thread) {
  visit_sums(thread, [](float* sums, const float4& kept) {
    sums[0] = add_rn(kept.x, sums[0]), sums[1] = add_rn(kept.y, sums[1]);
    sums[2] = add_rn(kept.z, sums[2]), sums[3] = add_rn(kept.w, sums[3]);
  });
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

// Waits until all threads of the blocks whose sums are folded are here.
JITNORM_INLINE void folding_barrier() {
  if constexpr (kFoldedBlocks == 1) {
    __syncthreads();
  } else {
    shared_memory_barrier();
  }
}

// The position in a row of a quad of a block's columns: chunks of a lane are a row's threads apart.
JITNORM_INLINE int quad_of_row(int quad) {
  if constexpr (kBlocksPerRow == 1) return quad;
  constexpr int kTurn = kSharingThreads * kChunkQuads;
  return (quad / kTurn * kBlocksPerRow + (int)(blockIdx.x % kBlocksPerRow)) * kTurn + quad % kTurn;
}

// Folds the sums of a cluster's threads, and stores them, with adjacent lanes side by side.
JITNORM_INLINE void fold_segment_sums(const Arguments& a, GradientThread& thread) {
  if constexpr (kStagesRows) asm volatile("cp.async.wait_all;" ::: "memory");  // rows that are not there come, too
  __syncthreads();
  if (kHasTwoSegments && thread.has_sums) add_kept_sums(thread);
  share_sums(thread);
  fold_places();
  folding_barrier();
  const int first = blockIdx.x % kFoldedBlocks * kThreads + threadIdx.x;
#pragma unroll 4
  for (int i = first; i < kParameterSums * kColumnQuads; i += kFoldedBlocks * kThreads) {
    const int p = i / kColumnQuads, quad = i % kColumnQuads, of_row = quad_of_row(quad);
    if (4 * of_row >= kHiddenSize) continue;
    const float4 sums = folded_quads<kFoldedPlaces * kFoldedBlocks>(
        [&](int k) { return sums_of_block(k % kFoldedBlocks, p, k / kFoldedBlocks, quad); });
    store_quad(partial_sums(a, thread.segment % kSegmentDistance, p), of_row, sums);
  }
  if constexpr (kFoldedBlocks > 1) end_sharing();
}

JITNORM_INLINE void store_segment_sums(const Arguments& a, GradientThread& thread) {
  if constexpr (kFoldsSums) {
    fold_segment_sums(a, thread);
  } else if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) store_parameter_sums(a, thread, j, thread.sums[j]);
  }
}
#else
// Sums are unused, so the compiler removes them.
JITNORM_INLINE void store_parameter_sums(const Arguments&, const GradientThread&, int, const ParameterSums&) {}

JITNORM_INLINE void load_parameter_sums(const Arguments&, const GradientThread&, int, ParameterSums&) {}

JITNORM_INLINE void keep_sums(GradientThread&) {}

JITNORM_INLINE void store_segment_sums(const Arguments&, GradientThread&) {}
#endif
