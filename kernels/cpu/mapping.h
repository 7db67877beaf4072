// The combine stage of hyper-connections (mHC) whose factors are computed from projections.
#pragma once

#include "../common/mapping.h"
#include "combine.h"
#include "row_reduce.h"

#ifdef JITNORM_MAPS_STREAMS
#ifdef JITNORM_SUMS_FIRST
// The divisor of projections: chunks accumulate one stream after another.
JITNORM_INLINE float reciprocal_rms_of_row(const Arguments& a, Int64, const Input* x) {
  const float sum = tree_sum_of_tiles([x](int t, float* sums) {
    for (int s = 0; s < kStreams; ++s) {
      Tile stream;
      load_tile(x + (Int64)s * kHiddenSize, kHiddenSize, t, stream);
      for_each_value([&](int e, int k) { sums[k] = fma_rn(stream.at[e][k], stream.at[e][k], sums[k]); });
    }
  });
  return reciprocal_rms_of_streams(sum, kStreams * kHiddenSize, a.eps);
}
#else
JITNORM_INLINE float reciprocal_rms_of_row(const Arguments& a, Int64 row, const Input*) {
  return given_reciprocal_rms(a, row);
}
#endif

// The sum of kStreams rows with such factors; those for after the layer are written.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kMapped>(const Arguments& a, Int64 row, Tile* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const float rstd = reciprocal_rms_of_row(a, row, x);
  float factors[kStreams];
  for (int s = 0; s < kStreams; ++s) factors[s] = factor_of_stream(a, Logit::of(a, row, kBefore, s), rstd);
  mix_streams(x, factors, h);
  write_mixes(a, row, MixLogits::of(a, row), rstd);
}
#endif
