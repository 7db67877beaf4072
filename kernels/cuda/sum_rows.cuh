// The sums of columns of a float32 matrix on GPUs: a block for a few columns, a warp for every so many rows of them.
#pragma once

#include "../common/gradients.h"
#include "../common/rows.h"
#include "row_reduce.cuh"

// Item `item` of kSummedColumns columns: each of kAccumulators takes every kAccumulators-th row in order,
// then they are folded. What is missing counts as zero, as it would in the accumulators.
JITNORM_INLINE void sum_rows_item(const Arguments& a, Int64 item) {
  constexpr int kColumns = kParameterSums * kHiddenSize;
  constexpr int kSums = kAccumulators / kSummingThreads;  // of a thread
  __shared__ float of_threads[kSummingThreads][kSummedColumns];
  const int column = threadIdx.x % kSummedColumns, part = threadIdx.x / kSummedColumns;
  const Int64 at = item * kSummedColumns + column;
  float sums[kSums] = {};
  for (Int64 first = part; first < a.rows; first += kAccumulators) {
    float values[kSums];  // all on their way at once
    JITNORM_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const Int64 row = first + i * kSummingThreads;
      const bool is_there = row < a.rows && at < kColumns;
      values[i] = is_there ? to_float(a.input[row_offset(row, a.extents, a.input_strides) + at]) : 0.0f;
    }
    JITNORM_UNROLL
    for (int i = 0; i < kSums; ++i) sums[i] = add_rn(sums[i], values[i]);
  }
  of_threads[part][column] = fold_sum(sums);
  __syncthreads();
  if (part > 0 || at >= kColumns) return;
  float parts[kSummingThreads];
  JITNORM_UNROLL
  for (int i = 0; i < kSummingThreads; ++i) parts[i] = of_threads[i][column];
  round_to(fold_sum(parts), sum_of_column(a, at));
}
