// The gradients of norms on GPUs. The threads of a block, or of a cluster, go through the rows of a segment; each has
// the same columns of every row, whose sums it keeps in registers.
#pragma once

#include "gradient_rows.cuh"
#include "row_reduce.cuh"

constexpr bool kHoldsWeight = kHoldsRow && !kStaysShared;
// The only stage is filled again once its rows are in registers, or nothing would be on its way for half of the time.
constexpr bool kRefillsEarly = kStages == 1 && !kStaysShared;

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

// The statistics of rows, if they are given, which is long before they are needed; of rows that are not there, any.
JITNORM_INLINE void load_statistics(const Arguments& a, const GradientThread& thread, Int64 pack,
                                    RowStatistic (&given)[kRowsAtOnce]) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const Int64 row = row_of_pack(thread.segment, pack + r) + thread.place;
    given[r] = given_statistic(a, row < a.rows ? row : 0);
  }
}

// The statistics of rows with the sums over them, for which every thread of the rows takes part. Rows take turns with
// two sets of shared sums, so that one barrier is enough.
JITNORM_INLINE void find_gradient_statistics(const Arguments& a, int set, const RowStatistic (&given)[kRowsAtOnce],
                                             GradientThread& thread, GradientRows& of,
                                             GradientStatistic (&statistics)[kRowsAtOnce]) {
  Sums<2 * kRowsAtOnce, 2> sums;
  sums.set = set;
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const auto add = [&](int j, GradientChunks& chunks, WeightChunk& weight, ParameterSums&) {
      float products = 0.0f, other = 0.0f;
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        const float d = centered_in_row(chunks.h(), given[r].mean, thread.index(j), i);
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
    statistics[r] = gradient_statistic(given[r], totals[2 * r], totals[2 * r + 1], a.eps);
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
      const float n = normalized(value_of(chunks.h(), i), statistic.of_row);
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
// Accumulators of packs that a thread folds at once.
constexpr int kFoldedPlaces = kRowsPerBlock < 8 ? kRowsPerBlock : 8;
constexpr int kColumnQuads = kThreadsPerRow * kChunksPerLane * kChunkSize / 4;

// Four columns of the accumulators of a place in a pack; where they stand, lanes use different banks, as in stages.
JITNORM_INLINE float4& pack_sums(int place, int quad) {
  __shared__ float4 sums[kRowsPerBlock][kColumnQuads];
  return sums[place][place_of_access<4>(quad)];
}

// The fold of so many of them, which are `distance` apart.
template <int kCount>
JITNORM_INLINE float4 folded_sums(int place, int quad, int distance) {
  float columns[4][kCount];
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const float4 sums = pack_sums(place + i * distance, quad);
    columns[0][i] = sums.x, columns[1][i] = sums.y, columns[2][i] = sums.z, columns[3][i] = sums.w;
  }
  return {fold_sum(columns[0]), fold_sum(columns[1]), fold_sum(columns[2]), fold_sum(columns[3])};
}

// Folds the sums of the rows of a pack, which different threads have, and stores them.
JITNORM_INLINE void fold_pack(const Arguments& a, const GradientThread& thread) {
  JITNORM_UNROLL
  for (int p = 0; p < kParameterSums; ++p) {
    JITNORM_UNROLL
    for (int j = 0; j < kHeldSums; ++j) {
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; i += 4) {
        const float* sums = thread.sums[j].of[p] + i;
        pack_sums(thread.place, (thread.index(j) * kChunkSize + i) / 4) = {sums[0], sums[1], sums[2], sums[3]};
      }
    }
    __syncthreads();
    for (int half = kRowsPerBlock / 2; half >= kFoldedPlaces; half /= 2) {
      for (int i = threadIdx.x; i < half * kColumnQuads; i += kThreads) {
        const int place = i / kColumnQuads, quad = i % kColumnQuads;
        pack_sums(place, quad) = folded_sums<2>(place, quad, half);
      }
      __syncthreads();
    }
    float* to = partial_sums(a, thread.segment, p);
    for (int quad = threadIdx.x; quad < kColumnQuads; quad += kThreads) {
      const float4 sums = folded_sums<kFoldedPlaces>(0, quad, 1);
      const float columns[4] = {sums.x, sums.y, sums.z, sums.w};
      if (kPartialsAccessBytes == 16 && 4 * quad < kHiddenSize) {
        reinterpret_cast<float4*>(to)[quad] = sums;
        continue;
      }
      JITNORM_UNROLL
      for (int c = 0; c < 4; ++c) {
        if (4 * quad + c < kHiddenSize) to[4 * quad + c] = columns[c];
      }
    }
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
      to.rows[r].place = stage * kRowsAtOnce + r;
      JITNORM_UNROLL
      for (int j = 0; !kStaysShared && j < kHeldGradients; ++j) {
        take_staged_chunks(to.rows[r].place, j, thread, to.rows[r].chunks[j]);
      }
    } else if constexpr (kHoldsRow) {
      load_gradient_row(a, to.numbers[r], thread, to.rows[r]);
    }
  }
}

// Begins to copy the rows after those on their way to a stage that the warp has read.
JITNORM_INLINE void stage_next_rows(const Arguments& a, Int64 pack, int stage, const GradientThread& thread) {
  if constexpr (!kStagesRows) return;
  __syncwarp();
  stage_rows(a, pack + kStages * kRowsAtOnce, stage, thread);
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
  if constexpr (kStaysShared) stage_weight(a, thread);  // it comes with the first row
  JITNORM_UNROLL
  for (int i = 0; i < kStages; ++i) stage_rows(a, i * kRowsAtOnce, i, thread);
  JITNORM_UNROLL
  for (int j = 0; kHoldsWeight && j < kHeldGradients; ++j) load_chunk(thread.weight[j], a.weight, thread.index(j));
  begin_sharing();
  int stage = 0, set = 0;
  RowStatistic given[kRowsAtOnce], next[kRowsAtOnce];
  load_statistics(a, thread, 0, given);
#pragma unroll 1
  for (Int64 pack = 0; row_of_pack(thread.segment, pack) < a.rows; pack += kRowsAtOnce) {
    GradientRows at;
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) at.numbers[r] = row_of_pack(thread.segment, pack + r) + thread.place;
    take_rows(a, stage, thread, at);
    load_statistics(a, thread, pack + kRowsAtOnce, next);
    if constexpr (kRefillsEarly) stage_next_rows(a, pack, stage, thread);
    GradientStatistic statistics[kRowsAtOnce];
    find_gradient_statistics(a, set, given, thread, at, statistics);
    if constexpr (!kStaysShared && !kRefillsEarly) stage_next_rows(a, pack, stage, thread);
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) finish_gradient_row(a, at.numbers[r], statistics[r], thread, at.rows[r]);
    if constexpr (kStaysShared) stage_next_rows(a, pack, stage, thread);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) given[r] = next[r];
    set ^= 1;
  }
  if constexpr (kRowsPerBlock > 1) {
    fold_pack(a, thread);
  } else if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) store_parameter_sums(a, thread, j, thread.sums[j]);
  }
}
