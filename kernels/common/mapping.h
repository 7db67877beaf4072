// Hyper-connections (mHC) before a layer: from projections of a row's streams to the factors by which they are mixed,
// here and behind the layer.
#pragma once

#include "activation.h"
#include "arguments.h"
#include "intrinsics.h"

#ifdef JITNORM_MAPS_STREAMS
// What factors are for: the streams before the layer, what it gives, and the streams behind it.
enum Mapping { kBefore, kOfLayer, kBehind };
constexpr int kMixes = kStreams * (2 + kStreams);

// What each split has of a sum, `stride` apart.
JITNORM_INLINE float sum_of_splits(const float* first, Int64 stride) {
  float sum = *first;
  for (int s = 1; s < kSplits; ++s) sum = add_rn(sum, first[s * stride]);
  return sum;
}

// By which projections are divided, given the sum of the squares of `count` elements.
JITNORM_INLINE float reciprocal_rms_of_streams(float sum_of_squares, float count, float eps) {
  return reciprocal_rn(sqrt_rn(add_rn(div_rn(sum_of_squares, count), eps)));
}

JITNORM_INLINE float given_reciprocal_rms(const Arguments& a, Int64 row) {
  return reciprocal_rms_of_streams(sum_of_splits(a.sqrsum + row, a.rows), a.k, a.eps);
}

// What the `index`th factor is found from.
JITNORM_INLINE float logit(const Arguments& a, Int64 row, float rstd, Mapping kind, int index) {
  const int at = kind * kStreams + index;
  const float projection = sum_of_splits(a.dot_mix + row * kMixes + at, a.rows * kMixes);
  return fma_rn(mul_rn(projection, rstd), a.mhc_scale[kind], a.mhc_base[at]);
}

JITNORM_INLINE float factor_of_stream(const Arguments& a, Int64 row, float rstd, int stream) {
  return add_rn(sigmoid(logit(a, row, rstd, kBefore, stream)), a.pre_eps);
}

// From each stream to each.
typedef float StreamMix[kStreams][kStreams];

// A row after another becomes its softmax, plus eps.
JITNORM_INLINE void make_positive(StreamMix& mix, float eps) {
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    float most = mix[i][0];
    JITNORM_UNROLL
    for (int j = 1; j < kStreams; ++j) most = max_or_nan(most, mix[i][j]);
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) mix[i][j] = exponential(add_rn(mix[i][j], -most));
    float sum = mix[i][0];
    JITNORM_UNROLL
    for (int j = 1; j < kStreams; ++j) sum = add_rn(sum, mix[i][j]);
    const float factor = reciprocal_rn(sum);
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) mix[i][j] = fma_rn(mix[i][j], factor, eps);
  }
}

// Divides each row, or each column, by its sum.
template <bool kColumns>
JITNORM_INLINE void divide_by_sums(StreamMix& mix, float eps) {
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    float sum = kColumns ? mix[0][i] : mix[i][0];
    JITNORM_UNROLL
    for (int j = 1; j < kStreams; ++j) sum = add_rn(sum, kColumns ? mix[j][i] : mix[i][j]);
    const float factor = reciprocal_rn(add_rn(sum, eps));
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) {
      float& each = kColumns ? mix[j][i] : mix[i][j];
      each = mul_rn(each, factor);
    }
  }
}

// Writes the factors for behind the layer. Those of streams approach a doubly stochastic matrix (Sinkhorn and Knopp).
JITNORM_INLINE void write_mixes(const Arguments& a, Int64 row, float rstd) {
  StreamMix mix;
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    const float post = mul_rn(sigmoid(logit(a, row, rstd, kOfLayer, i)), a.post_factor);
    a.post_mix[row * kStreams + i] = with_canonical_nan(post);
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) mix[i][j] = logit(a, row, rstd, kBehind, i * kStreams + j);
  }
  make_positive(mix, a.sinkhorn_eps);
  divide_by_sums<true>(mix, a.sinkhorn_eps);
  for (int round = 1; round < kSinkhornRounds; ++round) {
    divide_by_sums<false>(mix, a.sinkhorn_eps);
    divide_by_sums<true>(mix, a.sinkhorn_eps);
  }
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) {
      a.comb_mix[(row * kStreams + i) * kStreams + j] = with_canonical_nan(mix[i][j]);
    }
  }
}
#endif
