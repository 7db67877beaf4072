// Loads rows and the gradients of their norms for the threads that go through the rows of a segment: through shared
// memory, where the next rows arrive while the threads work on one; directly, if one takes all of it; or again in each
// pass, if rows are too long for registers.
#pragma once

#include "../common/gradients.h"
#include "../common/rows.h"
#include "staged_chunks.cuh"

constexpr bool kStagesRows = kStages > 0;
constexpr int kHeldSums = kHoldsRow ? kChunksPerLane : 1;
// If registers are scarce, rows and the weight stay in shared memory, and only the sums are held.
constexpr int kHeldGradients = kStaysShared ? 1 : kHeldSums;

// What a row's gradient is computed from: the row, the gradient of its norm, and one that is added to the result.
constexpr int kRowTensors = kAddsGrad ? 3 : 2;

// A chunk of each.
struct GradientChunks {
  InputChunk of[kRowTensors];

  JITNORM_INLINE InputChunk& h() { return of[0]; }
  JITNORM_INLINE InputChunk& grad() { return of[1]; }
  JITNORM_INLINE InputChunk& added() { return of[kRowTensors - 1]; }
};

struct GradientRow {
  int place;           // in shared memory, if it comes that way
  RowStatistic given;  // if it is; else it is found
  GradientChunks chunks[kHeldGradients];
};

// Sums for a chunk over the rows that a thread has processed.
struct ParameterSums {
  float of[kParameterSums][kChunkSize];
};

// A thread's share of all rows.
struct GradientThread {
  int first_chunk, lane, warp;  // its chunks are a row's threads apart
  int place;                    // of its row in a pack
  Int64 segment;
  Int64 packs;    // of the first of two segments
  bool has_sums;  // in memory: for the first of two segments, or for all rows so far if registers cannot hold them
  WeightChunk weight[kHeldGradients];
  ParameterSums sums[kHeldSums];

  JITNORM_INLINE int index(int j) const { return first_chunk + j * kThreadsPerRow; }
};

JITNORM_INLINE const Input* row_at(const Arguments& a, Int64 row, int tensor) {
  if (tensor == 0) return a.input + row_offset(row, a.extents, a.input_strides);
  if (tensor == 1) return a.grad + row_offset(row, a.extents, a.grad_strides);
  return a.residual + row_offset(row, a.extents, a.residual_strides);
}

// Chunk `index` of a row; zeros if there is no such row.
JITNORM_INLINE void load_gradient_chunks(const Arguments& a, Int64 row, int index, GradientChunks& to) {
  const bool is_there = row < a.rows;
  JITNORM_UNROLL
  for (int tensor = 0; tensor < kRowTensors; ++tensor) {
    load_chunk(to.of[tensor], row_at(a, is_there ? row : 0, tensor), is_there ? index : kChunks);
  }
}

JITNORM_INLINE void load_gradient_row(const Arguments& a, Int64 row, const GradientThread& thread, GradientRow& to) {
  JITNORM_UNROLL
  for (int j = 0; j < kHeldGradients; ++j) load_gradient_chunks(a, row, thread.index(j), to.chunks[j]);
}

// Accesses to chunks of all threads; if rows are not aligned, the lanes that share one have another.
template <typename StagedChunk>
constexpr int kStagedAccesses =
    kThreads * kAccessesOf<StagedChunk> + (kIsAligned<StagedChunk> ? 0 : kThreads / kLanesPerRow);

// From the chunks of the lanes that share a row to that other access.
template <typename StagedChunk>
JITNORM_INLINE int distance_to_last(int lane) {
  return kThreads * kAccessesOf<StagedChunk> - ((int)threadIdx.x - lane) * kAccessesOf<StagedChunk> +
         (int)threadIdx.x / kLanesPerRow;
}

// Chunks j of the lanes that share a row, in shared memory: of a tensor of the row at this place.
JITNORM_INLINE uint4* staged_chunks(int place, int tensor, int j, int lane) {
  extern __shared__ uint4 staged[];
  const int before = ((place * kRowTensors + tensor) * kChunksPerLane + j) * kStagedAccesses<InputChunk>;
  return staged + before + ((int)threadIdx.x - lane) * kAccessesOf<InputChunk>;
}

// The same for the weight, which follows all rows.
JITNORM_INLINE uint4* staged_weight(int j, int lane) {
  constexpr int kPlaces = kStages * kRowsAtOnce;
  const int before = j * kStagedAccesses<WeightChunk>;
  return staged_chunks(kPlaces, 0, 0, threadIdx.x) + before + ((int)threadIdx.x - lane) * kAccessesOf<WeightChunk>;
}

// What follows both.
JITNORM_INLINE uint4* end_of_staged() { return staged_weight(kStaysShared ? kChunksPerLane : 0, threadIdx.x); }

// Begins to copy 16 bytes of a row, the first of which may begin before it; those past it become zero.
template <typename StagedChunk, typename T>
JITNORM_INLINE void stage_access(uint4* to, const T* row, int index, bool is_there) {
  constexpr bool kIsWhole = kIsAligned<StagedChunk> && !kHasPartialChunk;
  const int past = kIsAligned<StagedChunk> ? 0 : bytes_past_aligned(row);
  const uint4* from = reinterpret_cast<const uint4*>(reinterpret_cast<const UInt8*>(row) - past);
  const int left = past + kHiddenSize * (int)sizeof(T) - 16 * index;
  const bool is_in_row = is_there && (kIsWhole ? index < kChunks * kAccessesOf<StagedChunk> : left > 0);
  const int size = kIsWhole || left > 16 ? 16 : left;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((UInt32)__cvta_generic_to_shared(to)),
               "l"(from + (is_in_row ? index : 0)), "r"(is_in_row ? size : 0)
               : "memory");
}

// Begins to copy chunks of a row for all lanes, each of which copies parts that make whole sectors with the others';
// zeros if there is no such row.
template <typename StagedChunk, typename T>
JITNORM_INLINE void stage_chunks(uint4* to, const T* row, int first, int lane, bool is_there) {
  constexpr int kAccesses = kAccessesOf<StagedChunk>;
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; ++i) {
    const int access = i * kLanesPerRow + lane;
    stage_access<StagedChunk>(to + place_of_access<kAccesses>(access), row, first * kAccesses + access, is_there);
  }
  if (!kIsAligned<StagedChunk> && lane == 0) {
    stage_access<StagedChunk>(to + distance_to_last<StagedChunk>(0), row, (first + kLanesPerRow) * kAccesses, is_there);
  }
}

// Begins to copy the row to a place.
JITNORM_INLINE void stage_row(const Arguments& a, Int64 row, int place, const GradientThread& thread) {
  const bool is_there = row < a.rows;
  const Int64 at = is_there ? row : 0;
  JITNORM_UNROLL
  for (int tensor = 0; tensor < kRowTensors; ++tensor) {
    const Input* from = row_at(a, at, tensor);
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      uint4* to = staged_chunks(place, tensor, j, thread.lane);
      stage_chunks<InputChunk>(to, from, thread.index(j) - thread.lane, thread.lane, is_there);
    }
  }
}

JITNORM_INLINE void stage_weight(const Arguments& a, const GradientThread& thread) {
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) {
    uint4* to = staged_weight(j, thread.lane);
    stage_chunks<WeightChunk>(to, a.weight, thread.index(j) - thread.lane, thread.lane, true);
  }
}

// A lane's chunk of what was copied of a row.
template <typename StagedChunk, typename T>
JITNORM_INLINE void take_staged(const uint4* from, const T* row, int lane, StagedChunk& to) {
#ifdef JITNORM_UNALIGNED
  if constexpr (!kIsAligned<StagedChunk>) {
    const uint4* last = from + distance_to_last<StagedChunk>(lane);
    return take_shifted_chunk(from, last, lane, bytes_past_aligned(row), to);
  }
#endif
  take_chunk(from, lane, to);
}

JITNORM_INLINE void take_staged_chunks(const Arguments& a, Int64 row, int place, int j, const GradientThread& thread,
                                       GradientChunks& to) {
  JITNORM_UNROLL
  for (int tensor = 0; tensor < kRowTensors; ++tensor) {
    const Input* from = row_at(a, row < a.rows ? row : 0, tensor);
    take_staged(staged_chunks(place, tensor, j, thread.lane), from, thread.lane, to.of[tensor]);
  }
}

// Calls visit(j, chunks, weight, sums) for each chunk; a row that is not held is read again from shared memory, or
// loaded again, in which case its sums are in memory.
template <typename Visit>
JITNORM_INLINE void visit_gradient_chunks(const Arguments& a, Int64 row, GradientThread& thread, GradientRow& of,
                                          Visit visit) {
  if constexpr (kStaysShared) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      take_staged_chunks(a, row, of.place, j, thread, of.chunks[0]);
      take_staged(staged_weight(j, thread.lane), a.weight, thread.lane, thread.weight[0]);
      visit(j, of.chunks[0], thread.weight[0], thread.sums[j]);
    }
  } else if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) visit(j, of.chunks[j], thread.weight[j], thread.sums[j]);
  } else {
#pragma unroll 1
    for (int j = 0; j < kChunksPerLane; ++j) {
      load_gradient_chunks(a, row, thread.index(j), of.chunks[0]);
      load_chunk(thread.weight[0], a.weight, thread.index(j));
      visit(j, of.chunks[0], thread.weight[0], thread.sums[0]);
    }
  }
}
