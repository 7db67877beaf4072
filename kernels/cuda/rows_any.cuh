// The schedule of row-wise ops for any hidden size: a row has a block, whose threads load its chunks anew for each
// pass.
JITNORM_INLINE void wait_for_inputs() {
#if JITNORM_PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks that cover the rows of a row set.
JITNORM_INLINE Int64 blocks_of(Int64 rows) { return visited_rows(rows); }

struct Row {
  Int64 number;
  RowSource source;
  RowStatistic statistic;
};

// Calls visit(chunk, its index, its number in this thread) for each chunk; whole warps do, also past the row.
template <typename Visit>
JITNORM_INLINE void visit_chunks(const Row& row, Visit visit) {
#pragma unroll 1
  for (int j = 0; j < kChunksPerLane; ++j) {
    const int index = threadIdx.x + j * kThreads;
    HeldChunk h;
    load_held(h, row.source, index);
    visit(h, index, j);
  }
}

JITNORM_INLINE void normalize_chunk(const Arguments& a, const HeldChunk& h, const Row& row, int index,
                                    float (&y)[kChunkSize]) {
  WeightChunk weight;
  Chunk<float, kBiasAccessBytes> bias;
  if constexpr (kNormalizes) load_chunk(weight, weight_of(a), index);
  if constexpr (kCenters) load_chunk(bias, bias_of(a), index);
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    const float b = kCenters ? bias.elements[i] : 0.0f;
    y[i] = normalize(value_of(h, i), row.statistic, factor_of(value_of(weight, i)), b);
  }
}

// What lies past the row does not count: normalized, its zeros are NaN if the row's statistic is infinite.
JITNORM_INLINE float chunk_amax(const float (&y)[kChunkSize], int index) {
  float amax = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (index < kWholeChunks || is_in_row(index, i)) amax = max_magnitude(amax, y[i]);
  }
  return amax;
}

// Every thread of the block takes part.
JITNORM_INLINE RowStatistic statistic_of(const Arguments& a, const Row& row, int warp, int lane) {
  RowStatistic statistic = {0.0f, 1.0f};
  RowSums sums;
  float totals[1];
  if constexpr (kCenters) {
    visit_chunks(row, [&](const HeldChunk& h, int, int j) { sums.add(0, chunk_sum(h), j, warp, lane); });
    sums.total(totals, lane);
    statistic.mean = mean_of(totals[0]);
    row_barrier();  // the sums of squares take the same memory
  }
  if constexpr (kNormalizes) {
    visit_chunks(row, [&](const HeldChunk& h, int index, int j) {
      sums.add(0, chunk_sum_of_squares(h, statistic.mean, index), j, warp, lane);
    });
    sums.total(totals, lane);
    statistic.rstd = reciprocal_rms(totals[0], eps_of(a));
  }
  return statistic;
}

// The largest |y| of the row, which every thread gets.
JITNORM_INLINE float amax_of(const Arguments& a, const Row& row, int warp, int lane) {
  float amax[1] = {0.0f};
  visit_chunks(row, [&](const HeldChunk& h, int index, int) {
    float y[kChunkSize];
    normalize_chunk(a, h, row, index, y);
    amax[0] = max_magnitude(amax[0], chunk_amax(y, index));
  });
  row_max(amax, warp, lane);
  return amax[0];
}

JITNORM_INLINE void process_rows(const Arguments& a, Int64 number) {
  const int thread = thread_of_row(), lane = thread % kLanesPerRow, warp = thread / kLanesPerRow;
  wait_for_inputs();
  if (is_padding(a, number)) write_padding_row(a, number, thread);
  if (!is_processed(a, number)) return;
#if JITNORM_PDL
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  Row row = {number, source_of(a, number), {}};
  row.statistic = statistic_of(a, row, warp, lane);
  const float amax = kNeedsRowAmax ? amax_of(a, row, warp, lane) : 0.0f;
  if (kKeepsRstd && thread == 0) inv_rms_of(a)[number] = row.statistic.rstd;
  const EncodeContext context = begin_row(a, number, call_scale_of(a, given_of(a)), amax, thread == 0);
  visit_chunks(row, [&](const HeldChunk& h, int index, int) {
    float y[kChunkSize];
    normalize_chunk(a, h, row, index, y);
    store_sum(row.source, h, index);
    store_norm(a, number, index, y);
    encode_chunk(context, index, y, chunk_amax(y, index));
  });
  end_row(context, thread);
}
