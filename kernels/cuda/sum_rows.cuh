// The sums of columns of a float32 matrix on GPUs: a block for a few columns, whose threads share the rows. It uses no
// shared memory, which would block the next kernel's blocks, which start early by programmatic dependent launch.
#pragma once

#include "../common/gradients.h"
#include "../common/rows.h"
#include "row_reduce.cuh"

constexpr int kAddedColumns = kParameterSums * kHiddenSize;
// Columns per thread, and threads that cover all columns of an item.
constexpr int kQuad = 4, kQuads = kSummedColumns / kQuad;
// Rows that the threads of a block begin with.
constexpr int kRowsAbreast = kSummingThreads / kQuads;
// Accumulators that get a row: there are fewer partial sums, so it is known which accumulators stay zero.
constexpr int kUsedAccumulators = kMostSummedRows > 0 ? kMostSummedRows : kAccumulators;
// Accumulators of a thread in each of its columns.
constexpr int kThreadSums = kUsedAccumulators / kRowsAbreast;
constexpr int kSummingWarps = kSummingThreads / 32;
static_assert(kUsedAccumulators % kRowsAbreast == 0);

// Columns of a row, of which `count` exist; zeros in place of the others.
JITNORM_INLINE float4 quad_at(const Input* from, int count) {
  constexpr bool kIsWide = kInputAccessBytes == sizeof(float4);
  if (kIsWide && (kAddedColumns % kQuad == 0 ? count > 0 : count >= kQuad)) {
    return *reinterpret_cast<const float4*>(from);
  }
  float columns[kQuad] = {};
  JITNORM_UNROLL
  for (int c = 0; c < kQuad && !(kIsWide && kAddedColumns % kQuad == 0); ++c) {
    if (c < count) columns[c] = to_float(from[c]);
  }
  return {columns[0], columns[1], columns[2], columns[3]};
}

// The sums of a thread: of every kAccumulators-th row from each kRowsAbreast-th on, in columns from `column` on.
JITNORM_INLINE void add_rows(const Arguments& a, int first, int column, float (&sums)[kQuad][kThreadSums]) {
  // The sums of folded segments have been added to the first rows.
  const Int64 rows = kMostSummedRows > 0 && a.rows > kMostSummedRows ? kMostSummedRows : a.rows;
#pragma unroll 1
  for (Int64 row = first; row < rows; row += kAccumulators) {
    float4 quads[kThreadSums];  // all in flight at once
    JITNORM_UNROLL
    for (int i = 0; i < kThreadSums; ++i) {
      const Int64 at = row + i * kRowsAbreast;
      const bool is_there = at < rows;
      const Input* from = a.input + row_offset(is_there ? at : 0, a.extents, a.input_strides) + column;
      quads[i] = quad_at(from, is_there ? kAddedColumns - column : 0);
    }
    JITNORM_UNROLL
    for (int i = 0; i < kThreadSums; ++i) {
      const float values[kQuad] = {quads[i].x, quads[i].y, quads[i].z, quads[i].w};
      JITNORM_UNROLL
      for (int c = 0; c < kQuad; ++c) sums[c][i] = add_rn(sums[c][i], values[c]);
    }
  }
}

// Item `item` of kSummedColumns columns: each of kAccumulators takes every kAccumulators-th row in order,
// then they are folded. What is missing counts as zero, as it would in the accumulators.
JITNORM_INLINE void sum_rows_item(const Arguments& a, Int64 item) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_column = (int)item * kSummedColumns;
  // Accumulators are folded starting with the most distant ones: those of a thread, of lanes with its columns, of
  // warps.
  const int first_row = lane / kQuads * kSummingWarps + warp;
  float sums[kQuad][kThreadSums] = {};
  add_rows(a, first_row, first_column + lane % kQuads * kQuad, sums);
  float of_lanes[kQuad];
  JITNORM_UNROLL
  for (int c = 0; c < kQuad; ++c) {
    of_lanes[c] = fold_sum(sums[c]);
    JITNORM_UNROLL
    for (int other = 16; other >= kQuads; other /= 2) {
      of_lanes[c] = add_rn(of_lanes[c], __shfl_xor_sync(kFullWarp, of_lanes[c], other));
    }
  }
  __shared__ alignas(16) float of_warps[kSummingWarps][kSummedColumns];
  if (lane < kQuads) {
    JITNORM_UNROLL
    for (int c = 0; c < kQuad; ++c) of_warps[warp][lane * kQuad + c] = of_lanes[c];
  }
  __syncthreads();
  const int column = first_column + threadIdx.x;
  if (threadIdx.x >= kSummedColumns || column >= kAddedColumns) return;
  float of_column[kSummingWarps];
  JITNORM_UNROLL
  for (int i = 0; i < kSummingWarps; ++i) of_column[i] = of_warps[i][threadIdx.x];
  round_to(fold_sum(of_column), sum_of_column(a, column));
}
