// What a kernel does before the previous one has ended.
#pragma once

#include "parameters.cuh"
#include "row.cuh"

// Where rows are is computed early, unless that depends on what the previous kernel may write.
#ifdef JITNORM_GATHERS
constexpr bool kPlacesEarly = false;
#else
constexpr bool kPlacesEarly = kHasPdl && (kCombine == Combine::kInput || kCombine == Combine::kAdd ||
                                          kCombine == Combine::kGated || kCombine == Combine::kActivated);
#endif

template <typename RowSource>
JITNORM_INLINE void compute_places(const RowSource& source, int index) {
  source.visit_loaded([&](const Input* row) { compute_now(row + place_in_row(index)); });
}

// Few rows finish sooner if what the previous kernel most likely does not write is fetched while it still runs: behind
// a product that has read its weight through the whole L2 cache, add + FP8 of 32 x 7168 went from 3.16 us to 2.88.
constexpr bool kFetchesEarly =
    kHasPdl && kTakesFastPath && kNormalizes && (kCombine == Combine::kInput || kCombine == Combine::kAdd);

// What a block has done with its rows, or with the last of a lane's chunks.
enum class Phase { kFound, kRequested, kSummed, kComputed, kStored };

// After which phase dependents are signalled, and in launches of few enough blocks; see kernels/signals.py.
constexpr Phase kSignal = kHurriesWarps ? Phase::kFound : Phase::kRequested;
constexpr Phase kLateSignal = kLateSignalsAwaitStores   ? Phase::kStored
                              : kLateSignalsAwaitValues ? Phase::kComputed
                                                        : Phase::kSummed;

JITNORM_INLINE bool signals_after(Phase phase) {
  const bool is_late = kLateBlocks > 0 && gridDim.x <= kLateBlocks;
  return phase == (is_late ? kLateSignal : kSignal);
}

JITNORM_INLINE void signal_after(Phase phase) {
  if (signals_after(phase)) launch_dependents();
}

// What all rows share is fetched by the first: by each, 128 rows of add + FP8 by token of 7168 columns took 3.63 us,
// not 3.33, on an H100, and 1024 of RMSNorm to FP8 groups of 1920 columns 6.50, not 3.51.
JITNORM_INLINE void fetch_early(const Arguments& a, Int64 row, int thread) {
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) {
    const int index = thread + j * (int)kThreadsPerRow;
    if (index >= kChunks) return;
    if (row == 0) {
#ifdef JITNORM_UNWEIGHTED
#else
      fetch(a.weight + index * kChunkSize);
#endif
      if constexpr (kHasBias) fetch(a.bias + index * kChunkSize);
    }
    if constexpr (kCombine == Combine::kAdd) {
      fetch(a.residual + row_offset(row, a.extents, a.residual_strides) + index * kChunkSize);
    }
  }
}
