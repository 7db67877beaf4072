// The schedule of row-wise ops: a row stays in the registers of its threads from its only load to its store.
// Short rows share a warp, rows of up to a few groups have a warp each, longer ones a block. Rows too long for the
// registers of a block are loaded again for each pass.

// Long rows are encoded a few chunks at a time, by the same code: unrolled in full, 8 chunks took NVRTC 0.34 s instead
// of 0.2, and the compiler kept their unpacked floats, twice the size of the chunks, in more registers than there are.
constexpr int kChunksAtOnce = !kHoldsRow ? 1 : kChunksPerLane < 4 ? kChunksPerLane : 4;
constexpr int kChunkSlots = (kChunksPerLane + kChunksAtOnce - 1) / kChunksAtOnce * kChunksAtOnce;
constexpr int kHeldChunks = kHoldsRow ? kChunkSlots : 1;

// The weight is fetched before the reduction hides its latency, unless the registers are needed for the row.
constexpr bool kPrefetchesWeight = kNormalizes && kHoldsRow && kMayPrefetchWeight && kChunksPerLane == kChunksAtOnce &&
                                   kChunksPerLane * (int)(sizeof(HeldChunk) + sizeof(WeightChunk)) <= 192;

struct Row {
  RowSource source;
  int first_chunk;  // this thread's first; the others follow, a row's threads apart
  HeldChunk held[kHeldChunks];
  WeightChunk weight[kChunksAtOnce];

  JITNORM_INLINE int index(int slot) const { return first_chunk + slot * kThreadsPerRow; }
};

// Calls visit(chunk, slot) for each chunk of the thread, before any of them is consumed.
template <typename Visit>
JITNORM_INLINE void visit_chunks(Row& row, Visit visit) {
  if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) visit(row.held[j], j);
  } else {
#pragma unroll 1
    for (int j = 0; j < kChunksPerLane; ++j) {
      load_held(row.held[0], row.source, row.index(j));
      visit(row.held[0], j);
    }
  }
}

JITNORM_INLINE void normalize_chunk(const Arguments& a, const HeldChunk& h, const WeightChunk& w,
                                    RowStatistic statistic, int index, float (&y)[kChunkSize]) {
  Chunk<float, kBiasAccessBytes> bias{};
  if constexpr (kCenters) load_chunk(bias, bias_of(a), index);
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    y[i] = normalize(to_float(h.elements[i]), statistic, to_float(w.elements[i]), bias.elements[i]);
  }
}

// The largest |y| of the row.
JITNORM_INLINE float row_amax(const Arguments& a, Row& row, RowStatistic statistic, int warp, int lane) {
  float amax = 0.0f;
  visit_chunks(row, [&](HeldChunk& h, int j) {
    if constexpr (kChunksPerLane > kChunksAtOnce) forget_unpacked(h);
    if constexpr (kNormalizes && !kPrefetchesWeight) load_chunk(row.weight[0], weight_of(a), row.index(j));
    float y[kChunkSize];
    const int index = row.index(j);
    normalize_chunk(a, h, row.weight[kPrefetchesWeight ? j : 0], statistic, index, y);
    // What lies past the row does not count: normalized, its zeros are NaN if the row's statistic is infinite.
    float larger = amax;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const bool counts = !kNormalizes || !kHasPartialChunk || index * kChunkSize + i < kHiddenSize;
      if (counts) larger = max_magnitude(larger, y[i]);
    }
    if (!kNormalizes || index < kChunks) amax = larger;
  });
  return row_max(amax, warp, lane);
}

JITNORM_INLINE void encode_held(const Arguments& a, Row& row, const EncodeContext& context, Int64 at,
                                RowStatistic statistic) {
#pragma unroll 1
  for (int first = 0; first < kChunkSlots; first += kChunksAtOnce) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) {
      const int index = row.index(first + j);
      if constexpr (!kHoldsRow) load_held(row.held[j], row.source, index);
      if constexpr (kNormalizes && !kPrefetchesWeight) load_chunk(row.weight[j], weight_of(a), index);
      float y[kChunkSize];
      normalize_chunk(a, row.held[j], row.weight[j], statistic, index, y);
      store_sum(row.source, row.held[j], index);
      store_norm(a, at, index, y);
      encode_chunk(context, index, y);
    }
    JITNORM_UNROLL
    for (int j = 0; j + kChunksAtOnce < kHeldChunks; ++j) row.held[j] = row.held[j + kChunksAtOnce];
  }
}

// The row's statistic; every thread of the block takes part.
JITNORM_INLINE RowStatistic statistic_of(const Arguments& a, Row& row, int warp, int lane) {
  RowStatistic statistic{0.0f, 1.0f};
  if constexpr (kCenters) {
    RowSum sum;
    visit_chunks(row, [&](const HeldChunk& h, int j) { sum.add(chunk_sum(h), j, warp, lane); });
    statistic.mean = mean_of(sum.total(lane));
    if constexpr (kGroups > 1) __syncthreads();  // the sums of squares take the same memory
  }
  if constexpr (kNormalizes) {
    RowSum sum;
    visit_chunks(row, [&](const HeldChunk& h, int j) {
      sum.add(chunk_sum_of_squares(h, statistic.mean, row.index(j)), j, warp, lane);
    });
    statistic.rstd = reciprocal_rms(sum.total(lane), eps_of(a));
  }
  return statistic;
}

// Blocks that cover the rows of a row set.
JITNORM_INLINE Int64 blocks_of(Int64 rows) { return (visited_rows(rows) + kRowsPerBlock - 1) / kRowsPerBlock; }

// With programmatic dependent launch, the kernel before may still write what this one reads.
JITNORM_INLINE void wait_for_inputs() {
#if JITNORM_PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Block number `block` of a row set.
JITNORM_INLINE void process_rows(const Arguments& a, Int64 block) {
  const int thread = threadIdx.x % kThreadsPerRow;
  const int lane = threadIdx.x % kLanesPerRow;
  const int warp = thread / kLanesPerRow;
  const Int64 block_row = block * kRowsPerBlock + threadIdx.x / kThreadsPerRow;

  wait_for_inputs();
  const bool is_row = is_processed(a, block_row);
  // A block of one row may leave early; in a block of several, all lanes are needed by the shuffles below.
  if (is_padding(a, block_row)) write_padding_row(a, block_row, thread);
  if (kRowsPerBlock == 1 && !is_row) return;

  const Int64 at = is_row ? block_row : 0;
  Row row{source_of(a, at), is_row ? thread : kChunks};
  if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunkSlots; ++j) load_held(row.held[j], row.source, row.index(j));
  }
  if constexpr (kPrefetchesWeight) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) load_chunk(row.weight[j], weight_of(a), row.index(j));
  }
#if JITNORM_PDL
  asm volatile("griddepcontrol.launch_dependents;");
#endif

  const RowStatistic statistic = statistic_of(a, row, warp, lane);
  float amax = 0.0f;
  if constexpr (kNeedsRowAmax) amax = row_amax(a, row, statistic, warp, lane);

  // Threads that are there only for the shuffles store nothing: their chunks lie past the row.
  const bool is_writer = is_row && thread == 0;
  if (kKeepsRstd && is_writer) inv_rms_of(a)[at] = statistic.rstd;
  const EncodeContext context = begin_row(a, at, amax, is_writer);
  encode_held(a, row, context, at, statistic);
  if (is_row) end_row(context, thread);
}
