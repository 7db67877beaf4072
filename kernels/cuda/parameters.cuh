// The parameters of a norm, which a thread's rows share; and whether they are loaded before they are needed.
#pragma once

#include "../common/given_scales.h"
#include "../common/normalize.h"
#include "source.cuh"

// Long rows are encoded a few chunks at a time, by the same code: unrolled in full, 8 chunks took NVRTC 0.34 s instead
// of 0.2, and the compiler kept their unpacked floats, twice the size of the chunks, which exceeds the registers.
constexpr int kChunksAtOnce = !kHoldsRow ? 1 : kChunksPerLane < kChunksUnrolled ? kChunksPerLane : kChunksUnrolled;
constexpr int kChunkSlots = (kChunksPerLane + kChunksAtOnce - 1) / kChunksAtOnce * kChunksAtOnce;
constexpr int kHeldChunks = kHoldsRow ? kChunkSlots : 1;
constexpr int kLongHeldBytes = kStaysShared ? 0 : sizeof(HeldChunk);  // of a chunk, from one pass to the next

// Of the parameters of a chunk.
#ifdef JITNORM_WEIGHTS
constexpr int kWeightBytes = kWeights * sizeof(WeightChunk);
#else
#ifdef JITNORM_MODULATES
constexpr int kWeightBytes = kHasModulationBias ? 2 * sizeof(BranchBias) : 0;
#else
constexpr int kWeightBytes = sizeof(WeightChunk);
#endif
#endif
// The weight is fetched before the reduction hides its latency, unless the registers are needed for the row.
constexpr bool kPrefetchesWeight = kNormalizes && kHoldsRow && kMayPrefetchWeight && kChunksPerLane == kChunksAtOnce &&
                                   kChunksPerLane * (kLongHeldBytes + kWeightBytes) <= kMaxPrefetchedBytes;
// Whether rows that several warps share finish sooner at the expense of many; those of one warp gain nothing by it.
constexpr bool kHurriesWarps = kFavoursLatency && kWarpsPerRow > 1;
// With few rows, it is loaded while sums are in flight, because a multiprocessor loads a row slowly enough that parts
// of the row would queue behind parts of the weight: on an H100, RMSNorm of 16 x 7168 went from 1.80 us to 1.57.
constexpr bool kLoadsWeightInFlight =
    kPrefetchesWeight && kHurriesWarps && kOp == Op::kRmsNorm && kCombine == Combine::kInput;
// With a residual, whose sums are stored then, it is early, and there is time to unpack it: in flight, add + RMSNorm
// of 1 x 7168 took 1.89 us, not 1.77.
constexpr bool kFindsFactorsEarly = kPrefetchesWeight && kHurriesWarps && !kLoadsWeightInFlight;

#ifdef JITNORM_SHARES_PARAMETERS
// Persistent blocks have float32 parameters in shared memory, after the rows: a chunk in four pieces, each next to
// those of other lanes. From the L1 cache, they would have to be sorted for every row.
JITNORM_INLINE uint4* shared_pieces(int parameter, int index) {
  extern __shared__ uint4 staged[];
  return staged + kRowsPerBlock * kStagedRows * kStagedBytes / 16 + parameter * (4 * kSharedChunks) + index;
}

JITNORM_INLINE void share_parameter(const Chunk<float, 16>& chunk, int parameter, int index) {
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) shared_pieces(parameter, index)[i * kSharedChunks] = chunk.accesses[i];
}

JITNORM_INLINE void take_parameter(Chunk<float, 16>& chunk, int parameter, int index) {
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) chunk.accesses[i] = shared_pieces(parameter, index)[i * kSharedChunks];
}
#endif

// What all rows share, loaded once for a thread's rows.
struct Parameters {
  WeightChunk weight;
  float factors[kChunkSize];  // of the weight, if they are unpacked before the rows' statistics are known
  Chunk<Weight, kBiasAccessBytes> bias;
#ifdef JITNORM_WEIGHTS
  WeightChunk others[kWeights - 1];
#endif
#ifdef JITNORM_MODULATES
  BranchBias scale_bias, shift_bias;
#endif

  JITNORM_INLINE void load(const Arguments& a, int index) {
#ifdef JITNORM_WEIGHTS
    JITNORM_UNROLL
    for (int n = 1; n < kWeights; ++n) load_parameter(others[n - 1], a.weight + n * kHiddenSize, index);
#endif
#ifdef JITNORM_MODULATES
    if constexpr (kHasModulationBias) {
      load_parameter(scale_bias, a.scale_bias, index);
      load_parameter(shift_bias, a.shift_bias, index);
    }
#endif
    if constexpr (kNormalizes) load_parameter(weight, a.weight, index);
    if constexpr (kHasBias) load_parameter(bias, a.bias, index);
  }

#ifdef JITNORM_SHARES_PARAMETERS
  // Puts them where take() finds them.
  JITNORM_INLINE void share(const Arguments& a, int index) {
    load(a, index);
    share_parameter(weight, 0, index);
    if constexpr (kHasBias) share_parameter(bias, 1, index);
  }

  JITNORM_INLINE void take(const Arguments&, int index) {
    take_parameter(weight, 0, index);
    if constexpr (kHasBias) take_parameter(bias, 1, index);
  }
#else
  // Loads those that were not loaded early.
  JITNORM_INLINE void take(const Arguments& a, int index) { load(a, index); }
#endif

  JITNORM_INLINE void find_factors() {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) factors[i] = computed(factor_of(value_of(weight, i)));
  }

  JITNORM_INLINE float factor(int i) const { return kFindsFactorsEarly ? factors[i] : factor_of(value_of(weight, i)); }
};

#ifdef JITNORM_GIVEN_SCALES
// Without a norm, the scales of columns are loaded with the row: loaded afterwards, they would take another latency.
constexpr bool kLoadsScalesEarly = kScalesColumns && !kNormalizes && kHoldsRow && kChunksPerLane == kChunksAtOnce;

// Scales of the columns of a chunk, which a thread's rows share.
struct ColumnScales {
  Chunk<float, kScaleAccessBytes> scales;

  JITNORM_INLINE void load(const Arguments& a, int index) {
    load_parameter(scales, given_scales_of(a, 0), index);
    if (index < kWholeChunks) return;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) scales.elements[i] = is_in_row(index, i) ? scales.elements[i] : 1.0f;
  }

  // The fast path checks once for all whether the reciprocals are normal; with a check for each, the compiler takes one
  // branch after another.
  JITNORM_INLINE void find_reciprocals(float (&reciprocals)[kChunkSize]) const {
    float least = kMaxFloat;  // NaN if any is
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      reciprocals[i] = fast_reciprocal(scales.elements[i]);
      least = min_magnitude(least, reciprocals[i]);
    }
    if (least > 0.0f) return;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) reciprocals[i] = reciprocal_rn(scales.elements[i]);
  }
};
#endif
