// Hyper-connections (mHC) before a layer: from projections of a row's streams to the factors that mix them, here and
// after the layer.
#pragma once

#include "activation.h"
#include "arguments.h"
#include "fast_path.h"
#include "intrinsics.h"

#ifdef JITNORM_MAPS_STREAMS
// What factors are for: the streams before the layer, its output, and the streams after it.
enum Mapping { kBefore, kOfLayer, kBehind };
constexpr int kMixes = kStreams * (2 + kStreams);

// Adds the splits' parts of a sum, which are `stride` apart.
JITNORM_INLINE float sum_of_splits(const float* first, Int64 stride) {
  float sum = *first;
  for (int s = 1; s < kSplits; ++s) sum = add_rn(sum, first[s * stride]);
  return sum;
}

// The divisor of projections, given the sum of the squares of `count` elements.
JITNORM_INLINE float reciprocal_rms_of_streams(float sum_of_squares, float count, float eps) {
  const float square = add_rn(div_rn(sum_of_squares, count), eps);
  if constexpr (kDivisionsBranch) {
    if (is_in_normal_range(square)) return fast_reciprocal_root(square);
  }
  return reciprocal_rn(sqrt_rn(square));
}

JITNORM_INLINE float given_reciprocal_rms(const Arguments& a, Int64 row) {
  return reciprocal_rms_of_streams(sum_of_splits(a.sqrsum + row, a.rows), a.k, a.eps);
}

// What the `index`th factor is computed from, once the divisor of projections is known.
struct Logit {
  float projection, scale, base;

  JITNORM_FORCE_INLINE static Logit of(const Arguments& a, Int64 row, Mapping kind, int index) {
    const int at = kind * kStreams + index;
    return {sum_of_splits(a.dot_mix + row * kMixes + at, a.rows * kMixes), a.mhc_scale[kind], a.mhc_base[at]};
  }

  JITNORM_FORCE_INLINE float value(float rstd) const { return fma_rn(mul_rn(projection, rstd), scale, base); }
};

JITNORM_INLINE float factor_of_stream(const Arguments& a, const Logit& logit, float rstd) {
  return add_rn(sigmoid(logit.value(rstd)), a.pre_eps);
}

// From each stream to each.
typedef float StreamMix[kStreams][kStreams];

// The reciprocal of each sum. With kIsFast, those of sums in the normal range, and whether these and all before are.
// Each round waits for the previous one: with a check in each, and logits loaded last, one row took 4.6 us, not 2.7.
template <bool kIsFast>
JITNORM_INLINE void invert(float (&sums)[kStreams], bool& are_normal) {
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    if (kIsFast) are_normal &= is_in_normal_range(sums[i]);
    sums[i] = kIsFast ? fast_reciprocal(sums[i]) : reciprocal_rn(sums[i]);
  }
}

// Turns each row into its softmax, plus eps.
template <bool kIsFast>
JITNORM_INLINE void make_positive(StreamMix& mix, float eps, bool& are_normal) {
  float sums[kStreams];
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    float most = mix[i][0];
    JITNORM_UNROLL
    for (int j = 1; j < kStreams; ++j) most = max_or_nan(most, mix[i][j]);
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) mix[i][j] = exponential(add_rn(mix[i][j], -most));
    sums[i] = mix[i][0];
    JITNORM_UNROLL
    for (int j = 1; j < kStreams; ++j) sums[i] = add_rn(sums[i], mix[i][j]);
  }
  invert<kIsFast>(sums, are_normal);
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) mix[i][j] = fma_rn(mix[i][j], sums[i], eps);
  }
}

// Divides each row, or each column, by its sum.
template <bool kIsFast, bool kColumns>
JITNORM_INLINE void divide_by_sums(StreamMix& mix, float eps, bool& are_normal) {
  float sums[kStreams];
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    sums[i] = kColumns ? mix[0][i] : mix[i][0];
    JITNORM_UNROLL
    for (int j = 1; j < kStreams; ++j) sums[i] = add_rn(sums[i], kColumns ? mix[j][i] : mix[i][j]);
    sums[i] = add_rn(sums[i], eps);
  }
  invert<kIsFast>(sums, are_normal);
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    JITNORM_UNROLL
    for (int j = 0; j < kStreams; ++j) mix[i][j] = mul_rn(mix[i][j], sums[kColumns ? j : i]);
  }
}

// What the factors for after the layer are computed from, loaded before the divisor of projections is.
struct MixLogits {
  Logit of_layer[kStreams], behind[kStreams * kStreams];

  JITNORM_FORCE_INLINE static MixLogits of(const Arguments& a, Int64 row) {
    MixLogits logits;
    JITNORM_UNROLL
    for (int i = 0; i < kStreams; ++i) logits.of_layer[i] = Logit::of(a, row, kOfLayer, i);
    JITNORM_UNROLL
    for (int i = 0; i < kStreams * kStreams; ++i) logits.behind[i] = Logit::of(a, row, kBehind, i);
    return logits;
  }
};

// Writes the factors from streams to streams, which approach a doubly stochastic matrix (Sinkhorn and Knopp). With
// kIsFast, says whether it could.
template <bool kIsFast>
JITNORM_INLINE bool write_stream_mix(const Arguments& a, Int64 row, const MixLogits& logits, float rstd) {
  StreamMix mix;
  JITNORM_UNROLL
  for (int i = 0; i < kStreams * kStreams; ++i) mix[i / kStreams][i % kStreams] = logits.behind[i].value(rstd);
  bool are_normal = true;
  make_positive<kIsFast>(mix, a.sinkhorn_eps, are_normal);
  divide_by_sums<kIsFast, true>(mix, a.sinkhorn_eps, are_normal);
  for (int round = 1; round < kSinkhornRounds; ++round) {
    divide_by_sums<kIsFast, false>(mix, a.sinkhorn_eps, are_normal);
    divide_by_sums<kIsFast, true>(mix, a.sinkhorn_eps, are_normal);
  }
  if (!are_normal) return false;
  JITNORM_UNROLL
  for (int i = 0; i < kStreams * kStreams; ++i) {
    a.comb_mix[row * (kStreams * kStreams) + i] = with_canonical_nan(mix[i / kStreams][i % kStreams]);
  }
  return true;
}

// Writes the factors for after the layer.
JITNORM_INLINE void write_mixes(const Arguments& a, Int64 row, const MixLogits& logits, float rstd) {
  JITNORM_UNROLL
  for (int i = 0; i < kStreams; ++i) {
    const float post = mul_rn(sigmoid(logits.of_layer[i].value(rstd)), a.post_factor);
    a.post_mix[row * kStreams + i] = with_canonical_nan(post);
  }
  if (!write_stream_mix<true>(a, row, logits, rstd)) write_stream_mix<false>(a, row, MixLogits::of(a, row), rstd);
}
#endif
