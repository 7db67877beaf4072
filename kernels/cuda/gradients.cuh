// The gradients of norms on GPUs. The threads of a block, or of a cluster, go through the rows of a segment; each has
// the same columns of every row, whose sums it keeps in registers.
#pragma once

#include "gradient_rows.cuh"
#include "row_reduce.cuh"

// What lies past the row counts as zero, also where the mean does not.
JITNORM_INLINE float centered_in_row(const InputChunk& h, float mean, int index, int i) {
  const bool is_counted = !kCenters || index < kWholeChunks || is_in_row(index, i);
  return is_counted ? centered(value_of(h, i), mean) : 0.0f;
}

JITNORM_INLINE float weighted_grad(const InputChunk& grad, const WeightChunk& weight, int i) {
  return mul_rn(value_of(grad, i), factor_of(value_of(weight, i)));
}

// Rows that threads work on together, which takes one barrier, and their numbers; what is not there is zero.
struct GradientRows {
  GradientRow rows[kRowsAtOnce];
  Int64 numbers[kRowsAtOnce];
};

// The means of rows; every thread of the rows takes part.
JITNORM_INLINE void find_means(const Arguments& a, int set, GradientThread& thread, GradientRows& of,
                               float (&means)[kRowsAtOnce]) {
  Sums<kRowsAtOnce, 2> sums;
  sums.set = set;
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const auto add = [&](int j, GradientChunks& chunks, WeightChunk&, ParameterSums&) {
      sums.add(r, chunk_sum(chunks.h()), j, thread.warp, thread.lane);
    };
    visit_gradient_chunks(a, of.numbers[r], thread, of.rows[r], add);
  }
  sums.total(means, thread.lane);
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) means[r] = mean_of(means[r]);
}

// The statistics of rows, likewise. Rows take turns with two sets of shared sums, so that one barrier is enough.
JITNORM_INLINE void find_gradient_statistics(const Arguments& a, int set, GradientThread& thread, GradientRows& of,
                                             GradientStatistic (&statistics)[kRowsAtOnce]) {
  constexpr int kCount = kCenters ? 3 : 2;
  float means[kRowsAtOnce] = {};
  if constexpr (kCenters) find_means(a, set, thread, of, means);
  Sums<kCount * kRowsAtOnce, 2> sums;
  sums.set = set;
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const auto add = [&](int j, GradientChunks& chunks, WeightChunk& weight, ParameterSums&) {
      float squares = 0.0f, products = 0.0f, grads = 0.0f;
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        const float d = centered_in_row(chunks.h(), means[r], thread.index(j), i);
        const float g = weighted_grad(chunks.grad(), weight, i);
        squares = fma_rn(d, d, squares);
        products = fma_rn(g, d, products);
        if constexpr (kCenters) grads = add_rn(grads, g);
      }
      sums.add(r * kCount, squares, j, thread.warp, thread.lane);
      sums.add(r * kCount + 1, products, j, thread.warp, thread.lane);
      if constexpr (kCenters) sums.add(r * kCount + 2, grads, j, thread.warp, thread.lane);
      forget_unpacked(chunks.h());
      forget_unpacked(chunks.grad());
    };
    visit_gradient_chunks(a, of.numbers[r], thread, of.rows[r], add);
  }
  float totals[kCount * kRowsAtOnce];
  sums.total(totals, thread.lane);
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const float* of_row = totals + r * kCount;
    statistics[r] = gradient_statistic(means[r], of_row[0], of_row[1], of_row[kCount - 1], a.eps);
  }
}

typedef Chunk<float, kPartialsAccessBytes> SumChunk;

#ifdef JITNORM_UNWEIGHTED
// Without parameters, what is summed up for them is dropped, and so the compiler drops the sums.
JITNORM_INLINE void store_parameter_sums(const Arguments&, const GradientThread&, int, const ParameterSums&) {}

JITNORM_INLINE void load_parameter_sums(const Arguments&, const GradientThread&, int, ParameterSums&) {}
#else
JITNORM_INLINE void store_parameter_sums(const Arguments& a, const GradientThread& thread, int j,
                                         const ParameterSums& sums) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    SumChunk chunk;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) round_to(sums.of[p][i], chunk.elements[i]);
    store_chunk_alone(partial_sums(a, thread.segment, p), thread.index(j), chunk);
  }
}

// The sums of rows that are too long for registers to keep them.
JITNORM_INLINE void load_parameter_sums(const Arguments& a, const GradientThread& thread, int j, ParameterSums& sums) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    SumChunk chunk{};
    if (thread.has_sums) load_chunk(chunk, partial_sums(a, thread.segment, p), thread.index(j));
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) sums.of[p][i] = chunk.elements[i];
  }
}
#endif

// Stores the gradient of a row, and adds what the row adds to the sums.
JITNORM_INLINE void finish_gradient_row(const Arguments& a, Int64 row, const GradientStatistic& statistic,
                                        GradientThread& thread, GradientRow& of) {
  const bool is_there = row < a.rows;
  const Int64 at = is_there ? row : 0;
  const auto finish = [&](int j, GradientChunks& chunks, WeightChunk& weight, ParameterSums& sums) {
    if constexpr (!kHoldsRow) load_parameter_sums(a, thread, j, sums);
    float result[kChunkSize];
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const float n = normalized(value_of(chunks.h(), i), statistic.mean, statistic.rstd);
      const float dy = value_of(chunks.grad(), i);
      const float dx = input_gradient(weighted_grad(chunks.grad(), weight, i), n, statistic);
      result[i] = kAddsGrad ? add_rn(dx, value_of(chunks.added(), i)) : dx;
      if (kRowsPerBlock * kRowsAtOnce > 1 && !is_there) continue;  // the norm of a row of zeros may be NaN
      sums.of[0][i] = fma_rn(dy, n, sums.of[0][i]);
      if constexpr (kHasBias) sums.of[kParameterSums - 1][i] = add_rn(sums.of[kParameterSums - 1][i], dy);
    }
    store_rounded(a.out + row_offset(at, a.extents, a.out_strides), is_there ? thread.index(j) : kChunks, result);
    if constexpr (!kHoldsRow) store_parameter_sums(a, thread, j, sums);
  };
  visit_gradient_chunks(a, at, thread, of, finish);
  thread.has_sums = true;
}

#ifdef JITNORM_UNWEIGHTED
JITNORM_INLINE void fold_pack(const Arguments&, const GradientThread&) {}
#else
// Folds the sums of the rows of a pack, which different threads have, and stores them.
JITNORM_INLINE void fold_pack(const Arguments& a, const GradientThread& thread) {
  constexpr int kColumns = kThreadsPerRow * kChunksPerLane * kChunkSize;
  __shared__ float sums[kRowsPerBlock * kColumns];
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    JITNORM_UNROLL
    for (int j = 0; j < kHeldGradients; ++j) {
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        sums[thread.place * kColumns + thread.index(j) * kChunkSize + i] = thread.sums[j].of[p][i];
      }
    }
    __syncthreads();
    for (int half = kRowsPerBlock / 2; half > 0; half /= 2) {
      for (int i = threadIdx.x; i < half * kColumns; i += kThreads)
        sums[i] = add_rn(sums[i], sums[i + half * kColumns]);
      __syncthreads();
    }
    float* to = partial_sums(a, thread.segment, p);
    for (int i = threadIdx.x; i < kHiddenSize; i += kThreads) round_to(sums[i], to[i]);
    __syncthreads();
  }
}
#endif

// Begins to copy the rows of packs to a stage.
JITNORM_INLINE void stage_rows(const Arguments& a, Int64 pack, int stage, const GradientThread& thread) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    stage_row(a, row_of_pack(thread.segment, pack + r) + thread.place, stage * kRowsAtOnce + r, thread);
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
      take_staged_row(stage * kRowsAtOnce + r, thread, to.rows[r]);
    } else if constexpr (kHoldsRow) {
      load_gradient_row(a, to.numbers[r], thread, to.rows[r]);
    }
  }
}

template <typename ArgumentsOf>
JITNORM_INLINE void process_segments(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  GradientThread thread{thread_of_row()};
  thread.lane = thread.first_chunk % kLanesPerRow;
  thread.warp = thread.first_chunk / kLanesPerRow;
  thread.place = kRowsPerBlock == 1 ? 0 : (int)threadIdx.x / kThreadsPerRow;
  thread.segment = row_block();
  launch_dependents();
  wait_for_inputs();
  JITNORM_UNROLL
  for (int i = 0; i < kStages; ++i) stage_rows(a, i * kRowsAtOnce, i, thread);
  JITNORM_UNROLL
  for (int j = 0; kHoldsRow && j < kHeldGradients; ++j) load_chunk(thread.weight[j], a.weight, thread.index(j));
  begin_sharing();
  int stage = 0, set = 0;
#pragma unroll 1
  for (Int64 pack = 0; row_of_pack(thread.segment, pack) < a.rows; pack += kRowsAtOnce) {
    GradientRows at;
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) at.numbers[r] = row_of_pack(thread.segment, pack + r) + thread.place;
    take_rows(a, stage, thread, at);
    GradientStatistic statistics[kRowsAtOnce];
    find_gradient_statistics(a, set, thread, at, statistics);
    if constexpr (kStagesRows) {
      __syncwarp();
      stage_rows(a, pack + kStages * kRowsAtOnce, stage, thread);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) finish_gradient_row(a, at.numbers[r], statistics[r], thread, at.rows[r]);
    set ^= 1;
  }
  if constexpr (kRowsPerBlock > 1) {
    fold_pack(a, thread);
  } else if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) store_parameter_sums(a, thread, j, thread.sums[j]);
  }
}
