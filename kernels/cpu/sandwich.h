// The combine stage of sandwich norms: the input's row statistic is computed before the row.
#pragma once

#include "../common/sandwich.h"
#include "combine.h"
#include "row_reduce.h"

#ifdef JITNORM_SANDWICH
// The float32 sum of the normalized input and a residual; it may also be stored, rounded to the input's type.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kSandwich>(const Arguments& a, Int64 row, Tile* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* r = a.residual + row_offset(row, a.extents, a.residual_strides);
  Input* sum = a.residual_out + row_offset(row, a.extents, a.residual_out_strides);
  for (int t = 0; t < kRowTiles; ++t) load_tile(x, kHiddenSize, t, h[t]);
  const float rstd = reciprocal_rms(row_sum_of_squares(h, 0.0f), a.eps);
  for (int t = 0; t < kRowTiles; ++t) {
    Tile residual, weight;
    load_tile(r, kHiddenSize, t, residual);
    load_tile(a.input_weight, kHiddenSize, t, weight);
    for_each_value([&](int e, int k) {
      h[t].at[e][k] = normalized_sum(h[t].at[e][k], rstd, factor_of(weight.at[e][k]), residual.at[e][k]);
    });
    clear_padding(t, h[t]);
    if constexpr (kStoresSum) store_tile(h[t], t, sum);
  }
}
#endif
