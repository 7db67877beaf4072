// The parameters of a norm, which a thread's rows share; and whether they are loaded before they are needed.
#pragma once

#include "../common/given_scales.h"
#include "../common/normalize.h"
#include "source.cuh"
#include "staged_chunks.cuh"

constexpr int kHeldChunks = kHoldsRow ? kChunksPerLane : 1;
// Whether every lane of a block has whole chunks of its first row: where several rows share a block, some warps may
// have none.
constexpr bool kFillsLanes = kRowsPerBlock == 1 && kHiddenSize == kChunksPerLane * kThreadsPerRow * kChunkSize;
// Bytes of a chunk from one pass to the next.
#ifdef JITNORM_ACTIVATES_EARLY
constexpr int kLongHeldBytes = sizeof(InputChunk) + kChunkSize * sizeof(float);
#else
#ifdef JITNORM_SANDWICH
constexpr int kLongHeldBytes = 2 * sizeof(InputChunk);  // in whose place the sum is held
#else
constexpr int kLongHeldBytes = sizeof(HeldChunk);
#endif
#endif

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
#ifdef JITNORM_SANDWICH
// Of a sum with a norm, both weights are, and wait for nothing else: 200 x 5376 takes 0.88 of the time, to NVFP4 0.90.
constexpr bool kLoadsWeightInFlight = kPrefetchesWeight;
#else
constexpr bool kLoadsWeightInFlight =
    kPrefetchesWeight && kHurriesWarps && kOp == Op::kRmsNorm && kCombine == Combine::kInput;
#endif
// With a residual, whose sums are stored then, it is early, and there is time to unpack it: in flight, add + RMSNorm
// of 1 x 7168 took 1.89 us, not 1.77.
constexpr bool kFindsFactorsEarly = kPrefetchesWeight && kHurriesWarps && !kLoadsWeightInFlight;

#ifdef JITNORM_SHARES_PARAMETERS
// Persistent blocks have the parameters in shared memory, after the rows: a chunk in pieces, each next to those of
// other lanes. From the L1 cache, those in float32 would have to be sorted for every row.
constexpr int kPieces = kAccessesOf<WeightChunk>;

JITNORM_INLINE uint4* shared_pieces(int parameter, int index) {
  extern __shared__ uint4 staged[];
  return staged + kRowsPerBlock * (kStagedBytes / 16) + parameter * (kPieces * kSharedChunks) + index;
}

JITNORM_INLINE void share_parameter(const WeightChunk& chunk, int parameter, int index) {
  JITNORM_UNROLL
  for (int i = 0; i < kPieces; ++i) shared_pieces(parameter, index)[i * kSharedChunks] = chunk.accesses[i];
}

JITNORM_INLINE void take_parameter(WeightChunk& chunk, int parameter, int index) {
  JITNORM_UNROLL
  for (int i = 0; i < kPieces; ++i) chunk.accesses[i] = shared_pieces(parameter, index)[i * kSharedChunks];
}
#endif

#ifdef JITNORM_COPIES_PARAMETERS
// The parameters of the chunks that a warp has in such a slot, in shared memory.
JITNORM_INLINE uint4* copied_parameter(int parameter, int slot) {
  extern __shared__ uint4 staged[];
  const int thread = (parameter * kChunksPerLane + slot) * kThreads + threadIdx.x / 32 * 32;
  return staged + thread * kAccessesOf<WeightChunk>;
}

// Begins to copy a parameter of the chunk `index` and those of the warp's other lanes, through the L1 cache, which has
// what other rows copied. Each lane copies parts that make whole sectors with the others'; of those past the row,
// nothing is read.
JITNORM_INLINE void copy_parameter(uint4* to, const Weight* parameter, int index) {
  constexpr int kAccesses = kAccessesOf<WeightChunk>;
  const int lane = threadIdx.x % 32, access = (index - lane) * kAccesses + lane;
  const uint4* from = reinterpret_cast<const uint4*>(parameter) + access;
  const UInt32 address = (UInt32)__cvta_generic_to_shared(to + place_of_access<kAccesses>(lane));
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; ++i) {  // places repeat after 32 accesses
    const bool is_in_row = kFillsLanes || access + 32 * i < kChunks * kAccesses;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(address + 512 * i), "l"(from + 32 * i),
                 "r"(is_in_row ? 16 : 0)
                 : "memory");
  }
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

  JITNORM_INLINE void take(const Arguments&, int, int index) {
    take_parameter(weight, 0, index);
    if constexpr (kHasBias) take_parameter(bias, 1, index);
  }
#else
#ifdef JITNORM_COPIES_PARAMETERS
  JITNORM_INLINE static void copy(const Arguments& a, int slot, int index) {
    copy_parameter(copied_parameter(0, slot), a.weight, index);
    if constexpr (kHasBias) copy_parameter(copied_parameter(1, slot), a.bias, index);
  }

  JITNORM_INLINE void take(const Arguments&, int slot, int) {
    const int lane = threadIdx.x % 32;
    take_chunk(copied_parameter(0, slot), lane, weight);
    if constexpr (kHasBias) take_chunk(copied_parameter(1, slot), lane, bias);
  }
#else
  // Loads those that were not loaded early.
  JITNORM_INLINE void take(const Arguments& a, int, int index) { load(a, index); }
#endif
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
