// The statistics of rows that threads hold, and what they do while sums are in flight.
#pragma once

#include "early.cuh"
#include "row.cuh"

// Stores the combined rows while their statistics are in flight.
JITNORM_INLINE void store_sums(Rows& of) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    Row& row = of.rows[r];
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) row.source.store_sum(row.held[j], row.index(j));
  }
}

#ifdef JITNORM_SUMS_FIRST
// Loads the weight of a chunk's first norm, if a sum with that is normalized in turn.
JITNORM_INLINE void load_input_weight(Row& row, int slot) {
#ifdef JITNORM_SANDWICH
  row.source.load_weight(row.held[slot], row.index(slot));
#endif
}

// Computes the rows from what is loaded, after a sum over that; every thread of the block takes part.
JITNORM_INLINE void make_rows(const Arguments& a, Rows& of, int warp, int lane) {
  RowSums sums;
  float totals[kRowsAtOnce];
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    visit_chunks(of.rows[r], [&](HeldChunk& h, int j) {
      sums.add(r, Source::sum_of(h), j, warp, lane);
      forget_unpacked(h);
    });
  }
  JITNORM_UNROLL
  for (int r = 0; kLoadsWeightInFlight && r < kRowsAtOnce; ++r) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) load_input_weight(of.rows[r], j);
  }
  sums.total(totals, lane);
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    Row& row = of.rows[r];
    row.source.take_sum(a, row.number, totals[r]);
    JITNORM_UNROLL
    for (int j = 0; kHoldsRow && j < kChunksPerLane; ++j) {
      if constexpr (!kLoadsWeightInFlight) load_input_weight(row, j);
      row.source.make(row.held[j], row.index(j));
    }
  }
}
#endif

// Loads the weight before it is needed, and after what was requested until now: the compiler would move it.
JITNORM_INLINE void load_weights(const Arguments& a, Rows& of) {
  __syncwarp();
  JITNORM_UNROLL
  for (int j = 0; j < kChunksAtOnce; ++j) of.parameters[j].load(a, of.rows[0].index(j));
}

#ifdef JITNORM_GIVEN_SCALES
JITNORM_INLINE void load_scales(const Arguments& a, Rows& of) {
  JITNORM_UNROLL
  for (int j = 0; j < kChunksAtOnce; ++j) of.scales[j].load(a, of.rows[0].index(j));
}
#endif

#ifdef JITNORM_ACTIVATES_EARLY
// Computes the activations of gates, which arrive before the values that the statistics wait for.
JITNORM_INLINE void activate_gates(Rows& of) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    visit_chunks(of.rows[r], [](HeldChunk& h, int) { activate(h.gates, h.activations); });
  }
}
#endif

// The rows' means. Calls meanwhile() once each thread has gone through its chunks.
template <typename Visit>
JITNORM_INLINE void find_means(Rows& of, RowSums& sums, int warp, int lane, Visit meanwhile) {
  float totals[kRowsAtOnce];
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    visit_chunks(of.rows[r], [&](HeldChunk& h, int j) {
      sums.add(r, of.rows[r].has_chunk(j) ? chunk_sum(h) : 0.0f, j, warp, lane);
      forget_unpacked(h);
    });
  }
  meanwhile();
  sums.total(totals, lane);
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) of.rows[r].statistic.mean = mean_of(totals[r]);
}

// The rows' statistics; every thread of the block takes part. Calls meanwhile() once each thread has gone through its
// chunks for the first time.
template <typename Visit>
JITNORM_INLINE void find_statistics(const Arguments& a, Rows& of, int warp, int lane, Visit meanwhile) {
#ifdef JITNORM_SUMS_FIRST
  make_rows(a, of, warp, lane);
#endif
#ifdef JITNORM_ACTIVATES_EARLY
  activate_gates(of);
#endif
  RowSums sums = sums_of_turn(of.turn);
  float totals[kRowsAtOnce];
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) of.rows[r].statistic = {0.0f, 1.0f};
  if constexpr (kCenters) {
    find_means(of, sums, warp, lane, meanwhile);
  }
  if constexpr (kSumsTwice) sums.set = 1;
  if constexpr (kNormalizes) {
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      Row& row = of.rows[r];
      visit_chunks(row, [&](HeldChunk& h, int j) {
        const float sum = row.has_chunk(j) ? chunk_sum_of_squares(h, row.statistic.mean, row.index(j)) : 0.0f;
        sums.add(r, sum, j, warp, lane);
        forget_unpacked(h);
      });
    }
    if constexpr (kFindsFactorsEarly) {
      JITNORM_UNROLL
      for (int j = 0; j < kChunksAtOnce; ++j) of.parameters[j].find_factors();
    }
    if constexpr (kStoresSumEarly) store_sums(of);
    if constexpr (kLoadsWeightInFlight) load_weights(a, of);
    if constexpr (!kCenters) meanwhile();
    sums.total(totals, lane, [] { signal_after(Phase::kSummed); });
#ifdef JITNORM_COPIES_PARAMETERS
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();  // a lane's parameters were copied by others, too
#endif
    JITNORM_UNROLL
#ifdef JITNORM_TWO_SIZES
    for (int r = 0; r < kRowsAtOnce; ++r) of.rows[r].statistic.rstd = reciprocal_rms_of(totals[r], a.size, a.eps);
#else
    for (int r = 0; r < kRowsAtOnce; ++r) of.rows[r].statistic.rstd = reciprocal_rms(totals[r], a.eps);
#endif
  }
}
