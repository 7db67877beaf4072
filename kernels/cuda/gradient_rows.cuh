// Rows and the gradients of their norms, from memory to the threads that go through the rows of a segment: by way of
// shared memory, where the next rows arrive while the threads work on one; straight, where accesses are narrow or
// chunks partial; or once more for each pass, where rows are too long for registers.
#pragma once

#include "../common/gradients.h"
#include "../common/rows.h"
#include "chunks.cuh"

constexpr int kHeldGradients = kHoldsRow ? kChunksPerLane : 1;
constexpr bool kStagesRows = kStages > 0;

// What a row's gradient is made of: the row, the gradient of its norm, and one that is added to the row's own.
constexpr int kRowTensors = kAddsGrad ? 3 : 2;

// A chunk of each.
struct GradientChunks {
  InputChunk of[kRowTensors];

  JITNORM_INLINE InputChunk& h() { return of[0]; }
  JITNORM_INLINE InputChunk& grad() { return of[1]; }
  JITNORM_INLINE InputChunk& added() { return of[kRowTensors - 1]; }
};

struct GradientRow {
  GradientChunks chunks[kHeldGradients];
};

// Sums for a chunk, of the rows that a thread has worked on.
struct ParameterSums {
  float of[kParameterSums][kChunkSize];
};

// What a thread has of all rows.
struct GradientThread {
  int first_chunk, lane, warp;  // its chunks are a row's threads apart
  int place;                    // of its row in a pack
  Int64 segment;
  bool has_sums;  // in memory, if they are too many for registers
  WeightChunk weight[kHeldGradients];
  ParameterSums sums[kHeldGradients];

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

// Accesses of 16 bytes that a chunk takes.
constexpr int kStagedAccesses = InputChunk::kBytes / 16;

// Where an access stands in shared memory, of those to chunks j of the lanes that share a row. They are out of order,
// so that lanes use different banks both as they copy, next to each other, and as they take chunks of their own.
JITNORM_INLINE uint4* staged_access(int place, int tensor, int j, int access, int lane) {
  extern __shared__ uint4 staged[];
  const int thread = ((place * kRowTensors + tensor) * kChunksPerLane + j) * kThreads + threadIdx.x - lane;
  return staged + thread * kStagedAccesses + (access ^ access / 8 % kStagedAccesses);
}

// Begins to copy the chunks of a thread and its neighbours, of which each copies what makes whole sectors with the
// others'; zeros if there is no such row.
JITNORM_INLINE void stage_row(const Arguments& a, Int64 row, int place, const GradientThread& thread) {
  const Int64 at = row < a.rows ? row : 0;
  JITNORM_UNROLL
  for (int tensor = 0; tensor < kRowTensors; ++tensor) {
    const uint4* from = reinterpret_cast<const uint4*>(row_at(a, at, tensor));
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      JITNORM_UNROLL
      for (int i = 0; i < kStagedAccesses; ++i) {
        const int access = i * kLanesPerRow + thread.lane;
        const int of_row = (thread.index(j) - thread.lane) * kStagedAccesses + access;
        const bool is_there = row < a.rows && of_row < kChunks * kStagedAccesses;
        // Of no bytes, what is missing of 16 becomes zero.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         (UInt32)__cvta_generic_to_shared(staged_access(place, tensor, j, access, thread.lane))),
                     "l"(from + (is_there ? of_row : 0)), "r"(is_there ? 16 : 0)
                     : "memory");
      }
    }
  }
}

JITNORM_INLINE void take_staged_row(int place, const GradientThread& thread, GradientRow& to) {
  JITNORM_UNROLL
  for (int tensor = 0; tensor < kRowTensors; ++tensor) {
    JITNORM_UNROLL
    for (int j = 0; j < kHeldGradients; ++j) {
      uint4* chunk = reinterpret_cast<uint4*>(&to.chunks[j].of[tensor]);
      JITNORM_UNROLL
      for (int i = 0; i < kStagedAccesses; ++i) {
        chunk[i] = *staged_access(place, tensor, j, thread.lane * kStagedAccesses + i, thread.lane);
      }
    }
  }
}

// Calls visit(j, chunks, weight, sums) for each chunk; a row that is not held is loaded again, and its sums are in
// memory.
template <typename Visit>
JITNORM_INLINE void visit_gradient_chunks(const Arguments& a, Int64 row, GradientThread& thread, GradientRow& of,
                                          Visit visit) {
  if constexpr (kHoldsRow) {
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
