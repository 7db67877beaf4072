// The combine stage of hyper-connections (mHC) whose factors are computed from projections.
#pragma once

#include "../common/mapping.h"
#include "combine.cuh"

#ifdef JITNORM_MAPS_STREAMS
// A chunk of all streams as it is loaded, and their mix.
struct MappedChunk {
  InputChunk streams[kStreams];
  Chunk<float, 16> mix;
};

#ifdef JITNORM_SUMS_FIRST
// The rstd of a row, stored in the place of its factors for after the layer until these are computed.
JITNORM_INLINE void leave_rstd(const Arguments& a, Int64 row, float rstd) { a.post_mix[row * kStreams] = rstd; }
JITNORM_INLINE float left_rstd(const Arguments& a, Int64 row) { return a.post_mix[row * kStreams]; }
#endif

JITNORM_INLINE float value_of(const MappedChunk& h, int i) { return h.mix.elements[i]; }
JITNORM_INLINE void forget_unpacked(MappedChunk& h) {
  JITNORM_UNROLL
  for (int s = 0; s < kStreams; ++s) forget_unpacked(h.streams[s]);
}

// Neighbouring lanes of a row compute a factor each, where their number allows it, and give it to the others: 70 of 360
// instructions less for four streams and one chunk per lane.
constexpr bool kSharesFactors = kLanesPerRow % kStreams == 0 && (kStreams & (kStreams - 1)) == 0;
constexpr int kFactorsPerLane = kSharesFactors ? 1 : kStreams;

// Hyper-connections (mHC): the same sum, with factors computed from projections.
template <>
struct RowSource<Combine::kMapped> {
  typedef MappedChunk Held;

  const Input* input;
  Logit logits[kFactorsPerLane];  // loaded before the row, which hides it
  float rstd;                     // the divisor of projections, once it is known
  float factors[kStreams];

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    RowSource source{};
    source.input = a.input + row_offset(row, a.extents, a.input_strides);
    const int first = kSharesFactors ? threadIdx.x % kStreams : 0;
    JITNORM_UNROLL
    for (int i = 0; i < kFactorsPerLane; ++i) source.logits[i] = Logit::of(a, row, kBefore, first + i);
    return source;
  }

  JITNORM_INLINE void find_factors(const Arguments& a, float reciprocal_rms) {
    rstd = reciprocal_rms;
    float own[kFactorsPerLane];
    JITNORM_UNROLL
    for (int i = 0; i < kFactorsPerLane; ++i) own[i] = factor_of_stream(a, logits[i], rstd);
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) {
      factors[s] = kSharesFactors ? __shfl_sync(kFullWarp, own[0], s, kStreams) : own[s % kFactorsPerLane];
    }
  }

#ifdef JITNORM_SUMS_FIRST
  // The terms of a chunk in the sum that comes first: one stream after another.
  JITNORM_INLINE static float sum_of(const Held& h) {
    float sum = 0.0f;
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) {
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) sum = fma_rn(value_of(h.streams[s], i), value_of(h.streams[s], i), sum);
    }
    return sum;
  }

  JITNORM_INLINE void take_sum(const Arguments& a, Int64, float total) {
    find_factors(a, reciprocal_rms_of_streams(total, kStreams * kHiddenSize, a.eps));
  }
#else
  JITNORM_INLINE void take_given_sum(const Arguments& a, Int64 row) { find_factors(a, given_reciprocal_rms(a, row)); }
#endif

  // A row that is not held is loaded again for each pass; in a preceding sum, it is not mixed yet.
  JITNORM_INLINE void load(Held& h, int index) const {
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) load_chunk(h.streams[s], input + s * kHiddenSize, index);
    if constexpr (!kHoldsRow) make(h, index);
  }

  JITNORM_INLINE void make(Held& h, int) const {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      float sum = 0.0f;
      JITNORM_UNROLL
      for (int s = 0; s < kStreams; ++s) sum = fma_rn(factors[s], value_of(h.streams[s], i), sum);
      h.mix.elements[i] = sum;
    }
  }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};
#endif
