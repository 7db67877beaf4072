// The sums of columns of a float32 matrix on the host.
#pragma once

#include "../common/gradients.h"
#include "../common/rows.h"

// Item `item` of kSummedColumns columns: each of kAccumulators takes every kAccumulators-th row in order,
// then they are folded. What is missing counts as zero, as it would in the accumulators.
JITNORM_INLINE void sum_rows_item(const Arguments& a, Int64 item) {
  static thread_local float sums[kAccumulators][kSummedColumns];
  const int first = (int)item * kSummedColumns;
  const int left = kParameterSums * kHiddenSize - first, columns = left < kSummedColumns ? left : kSummedColumns;
  int folded = 1;
  while (folded < kAccumulators && folded < a.rows) folded *= 2;
  for (int i = 0; i < folded; ++i) {
    for (float& sum : sums[i]) sum = 0.0f;
  }
  for (Int64 row = 0; row < a.rows; ++row) {
    const Input* from = a.input + row_offset(row, a.extents, a.input_strides) + first;
    float* sum = sums[row % kAccumulators];
    for (int c = 0; c < columns; ++c) sum[c] = add_rn(sum[c], to_float(from[c]));
  }
  for (int half = folded / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      for (int c = 0; c < kSummedColumns; ++c) sums[i][c] = add_rn(sums[i][c], sums[i + half][c]);
    }
  }
  for (int c = 0; c < columns; ++c) round_to(sums[0][c], sum_of_column(a, first + c));
}
