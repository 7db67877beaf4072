// The gradients of norms on GPUs. The threads of a block, or of a cluster, go through the rows of a segment; each has
// the same columns of every row, whose sums it keeps in registers.
#pragma once

#include "gradient_rows.cuh"
#include "row_reduce.cuh"
#include "segment_sums.cuh"

constexpr bool kHoldsWeight = kHoldsRow && !kStaysShared;
// The only stage is refilled as soon as its rows are in registers, because otherwise nothing would be in flight half of
// the time.
constexpr bool kRefillsEarly = kStages == 1 && !kStaysShared;

// What lies past the row counts as zero, also where the mean does not.
JITNORM_INLINE float centered_in_row(const InputChunk& h, float mean, int index, int i) {
  const bool is_counted = !kCenters || is_there(index, i);
  return is_counted ? centered(value_of(h, i), mean) : 0.0f;
}

JITNORM_INLINE float weighted_grad(const InputChunk& grad, const WeightChunk& weight, int i) {
  return mul_rn(value_of(grad, i), factor_of(value_of(weight, i)));
}

// Rows that threads process together, with one barrier, and their indices; missing ones are zero.
struct GradientRows {
  GradientRow rows[kRowsAtOnce];
  Int64 numbers[kRowsAtOnce];
};

// The first row of the i-th pack that a block works on.
JITNORM_INLINE Int64 row_of_step(const GradientThread& thread, Int64 i) {
  const bool is_in_second = kHasTwoSegments && i >= thread.packs;
  return row_of_pack(thread.segment + (is_in_second ? kSegmentDistance : 0), is_in_second ? i - thread.packs : i);
}

// The given statistic of the step as many after this one as the lane's number, arbitrary for a missing row. A row's
// lanes load those of as many steps at once. If all loaded that of the next row, some kernels would wait for it where
// they wait for a shuffle, because scoreboards are few: layer normalization of 2500 x 8192 took 1.23 times as long.
JITNORM_INLINE RowStatistic load_statistic(const Arguments& a, const GradientThread& thread, Int64 step) {
  const Int64 row = row_of_step(thread, step + thread.lane) + thread.place;
  return given_statistic(a, row < a.rows ? row : 0);
}

// The statistics of a step's rows, of those that lanes hold.
JITNORM_INLINE void share_statistics(const RowStatistic& held, Int64 step, RowStatistic (&given)[kRowsAtOnce]) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    given[r] = held;
    if constexpr (!kIsStatisticGiven) continue;
    const int lane = (int)(step + r) % kLanesPerRow;
    given[r].mean = __shfl_sync(kFullWarp, held.mean, lane, kLanesPerRow);
    given[r].rstd = __shfl_sync(kFullWarp, held.rstd, lane, kLanesPerRow);
  }
}

// The statistics of rows and the sums over them, in which every thread of the rows takes part. Rows alternate between
// two sets of shared sums, so that one barrier or exchange suffices: the sums of the row before are used, for its
// gradient, before a thread comes to it.
JITNORM_INLINE void find_gradient_statistics(const Arguments& a, UInt32 step, GradientThread& thread, GradientRows& of,
                                             GradientStatistic (&statistics)[kRowsAtOnce]) {
  Sums<2 * kRowsAtOnce, 2, true> sums;
  sums.set = step % 2;
  sums.parity = step / 2 % 2;
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const auto add = [&](int j, GradientChunks& chunks, WeightChunk& weight, ParameterSums&) {
      float products = 0.0f, other = 0.0f;
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        const float d = centered_in_row(chunks.h(), of.rows[r].given.mean, thread.index(j), i);
        const float g = weighted_grad(chunks.grad(), weight, i);
        products = fma_rn(g, d, products);
        other = add_other(d, g, other);
      }
      sums.add(2 * r, products, j, thread.warp, thread.lane);
      sums.add(2 * r + 1, other, j, thread.warp, thread.lane);
      forget_unpacked(chunks.h());
      forget_unpacked(chunks.grad());
    };
    visit_gradient_chunks(a, of.numbers[r], thread, of.rows[r], add);
  }
  float totals[2 * kRowsAtOnce];
  sums.total(totals, thread.lane);
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    statistics[r] = gradient_statistic(of.rows[r].given, totals[2 * r], totals[2 * r + 1], a.eps);
  }
}

// Stores the gradient of a row, and adds the row's terms to the sums.
JITNORM_INLINE void finish_gradient_row(const Arguments& a, Int64 row, const GradientStatistic& statistic,
                                        GradientThread& thread, GradientRow& of) {
  const bool is_there = row < a.rows;
  const Int64 at = is_there ? row : 0;
  const auto finish = [&](int j, GradientChunks& chunks, WeightChunk& weight, ParameterSums& sums) {
    if constexpr (!kHoldsRow) load_parameter_sums(a, thread, j, sums);
    float result[kChunkSize];
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const float n = normalized(value_of(chunks.h(), i), statistic.of_row);
      const float dy = value_of(chunks.grad(), i);
      const float dx = input_gradient(weighted_grad(chunks.grad(), weight, i), n, statistic);
      result[i] = kAddsGrad ? add_rn(dx, value_of(chunks.added(), i)) : dx;
      if (kRowsPerBlock * kRowsAtOnce > 1 && !is_there) continue;  // the norm of a row of zeros may be NaN
      sums.of[0][i] = fma_rn(dy, n, sums.of[0][i]);
      if constexpr (kHasBias) sums.of[kParameterSums - 1][i] = add_rn(sums.of[kParameterSums - 1][i], dy);
    }
    store_rounded(a.out + row_offset(at, a.extents, a.out_strides), is_there ? thread.index(j) : kPastRow, result);
    if constexpr (!kHoldsRow) store_parameter_sums(a, thread, j, sums);
  };
  visit_gradient_chunks(a, at, thread, of, finish);
  if constexpr (!kHoldsRow) thread.has_sums = true;
}

// Begins to copy the rows of packs to a stage.
JITNORM_INLINE void stage_rows(const Arguments& a, Int64 pack, int stage, const GradientThread& thread) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    stage_row(a, row_of_step(thread, pack + r) + thread.place, stage * kRowsAtOnce + r, thread);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// The rows that were copied to a stage, once they have arrived, or rows straight from memory.
JITNORM_INLINE void take_rows(const Arguments& a, int stage, const GradientThread& thread, GradientRows& to) {
  if constexpr (kStagesRows) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStagesRows ? kStages - 1 : 0) : "memory");
    __syncwarp();
  }
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    if constexpr (kStagesRows) {
      to.rows[r].place = stage * kRowsAtOnce + r;
      JITNORM_UNROLL
      for (int j = 0; !kStaysShared && j < kHeldGradients; ++j) {
        take_staged_chunks(a, to.numbers[r], to.rows[r].place, j, thread, to.rows[r].chunks[j]);
      }
    } else if constexpr (kHoldsRow) {
      load_gradient_row(a, to.numbers[r], thread, to.rows[r]);
    }
  }
}

// Begins to copy the rows after those in flight to a stage that the warp has read.
JITNORM_INLINE void stage_next_rows(const Arguments& a, Int64 pack, int stage, const GradientThread& thread) {
  if constexpr (!kStagesRows) return;
  __syncwarp();
  stage_rows(a, pack + kStages * kRowsAtOnce, stage, thread);
}

// Has the L2 cache fetch what the first rows need and the previous kernel most likely does not write: all but the
// gradients of their norms. Behind `sum_rows`, which lets this kernel begin early, RMSNorm of 534 x 3584 took 8.6 us,
// not 9.3.
JITNORM_INLINE void fetch_first_rows(const Arguments& a, const GradientThread& thread) {
  constexpr int kFetchedRows = (kStages > 0 ? kStages : 1) * kRowsAtOnce;
#pragma unroll 1
  for (int i = 0; i < kFetchedRows; ++i) {
    const Int64 row = row_of_step(thread, i) + thread.place;
    if (row >= a.rows) return;
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      const int index = thread.index(j);
      if (index >= kChunks) continue;
      fetch(row_at(a, row, 0) + index * kChunkSize);
      if constexpr (kAddsGrad) fetch(row_at(a, row, 2) + index * kChunkSize);
    }
  }
}

// Each set of sums is expected again once it has arrived.
JITNORM_INLINE void expect_gradient_sums() {
  if constexpr (!kInClusters) return;
  begin_exchanges([] {
    begin_exchange(Exchange::kSums, 2 * kRowsAtOnce * kBytesOfSum);
    begin_exchange(Exchange::kNextSums, 2 * kRowsAtOnce * kBytesOfSum);
  });
}

template <typename ArgumentsOf>
JITNORM_INLINE void process_segments(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  GradientThread thread{thread_of_row()};
  thread.lane = thread.first_chunk % kLanesPerRow;
  thread.warp = thread.first_chunk / kLanesPerRow;
  thread.place = kRowsPerBlock == 1 ? 0 : (int)threadIdx.x / kThreadsPerRow;
  thread.segment = segment_of_block();
  thread.packs = (a.rows - thread.segment + kMostSegments - 1) / kMostSegments;
  launch_dependents();
  expect_gradient_sums();
  if constexpr (kHasPdl) fetch_first_rows(a, thread);
  await_blocks();
  wait_for_inputs();
  RowStatistic held = load_statistic(a, thread, 0), given[kRowsAtOnce];
  if constexpr (kStaysShared) stage_weight(a, thread);  // it comes with the first row
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) stage_rows(a, i * kRowsAtOnce, i, thread);
  JITNORM_UNROLL
  for (int j = 0; kHoldsWeight && j < kHeldGradients; ++j) {
    if constexpr (kIsAligned<WeightChunk>) {
      load_chunk(thread.weight[j], a.weight, thread.index(j));
    } else {
      load_parameter(thread.weight[j], a.weight, thread.index(j));
    }
  }
  int stage = 0;
  UInt32 step = 0;
  share_statistics(held, 0, given);
#pragma unroll 1
  for (Int64 pack = 0; row_of_step(thread, pack) < a.rows; pack += kRowsAtOnce) {
    if (kHasTwoSegments && pack == thread.packs) keep_sums(thread);
    GradientRows at;
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      at.numbers[r] = row_of_step(thread, pack + r) + thread.place;
      at.rows[r].given = given[r];
    }
    take_rows(a, stage, thread, at);
    if constexpr (kRefillsEarly) stage_next_rows(a, pack, stage, thread);
    GradientStatistic statistics[kRowsAtOnce];
    find_gradient_statistics(a, step, thread, at, statistics);
    const Int64 next = pack + kRowsAtOnce;
    if (next % kLanesPerRow == 0) held = load_statistic(a, thread, next);
    share_statistics(held, next, given);
    if constexpr (!kStaysShared && !kRefillsEarly) stage_next_rows(a, pack, stage, thread);
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) finish_gradient_row(a, at.numbers[r], statistics[r], thread, at.rows[r]);
    if constexpr (kStaysShared) stage_next_rows(a, pack, stage, thread);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    ++step;
  }
  store_segment_sums(a, thread);
}
