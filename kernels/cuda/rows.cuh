// The schedule of row-wise ops: a row stays in the registers of its threads from its only load to its store.
// Short rows share a warp, rows of up to a few groups have a warp each, longer ones a block. Rows too long for the
// registers of a block are loaded again for each pass.
#pragma once

#include "encode.cuh"
#include "row_amax.cuh"
#include "row_statistics.cuh"

#ifdef JITNORM_WEIGHTS
// Stores the norms of a chunk with all weights but the first.
JITNORM_INLINE void store_other_norms(const Arguments& a, const Row& row, const HeldChunk& h, const Parameters& p,
                                      int index) {
  JITNORM_UNROLL
  for (int n = 1; n < kWeights; ++n) {
    float y[kChunkSize];
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      y[i] = normalize(value_of(h, i), row.statistic, factor_of(value_of(p.others[n - 1], i)), 0.0f);
    }
    // Otherwise NVRTC 13.0 knows whether the store before was in the row, and copies exchanges into both branches, in
    // which the warp diverges: with 7424 columns, a kernel had 816 instructions, not 736.
    if constexpr (!kFillsLanes || kRowsAtOnce > 1) asm volatile("" : "+r"(index));
    store_rounded(row_by_weight(a, n, row.number), index, y);
  }
}
#endif

// The values of a chunk that are encoded.
JITNORM_INLINE void compute_chunk(Row& row, HeldChunk& h, const Parameters& p, int index, float (&y)[kChunkSize]) {
  if constexpr (!kHoldsRow) row.source.load(h, index);
  if constexpr (kKeepsNormalized) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) y[i] = float_in(h, i);
  } else {
    normalize_chunk(h, p, row.statistic, y);
  }
#ifdef JITNORM_ROTATES
  row.angles.turn(y, chunk_of_head(index));
#endif
}

// Moves a row's next chunks to where the last ones were.
JITNORM_INLINE void move_chunks(Row& row) {
  JITNORM_UNROLL
  for (int j = 0; j + kChunksAtOnce < kHeldChunks; ++j) {
    row.held[j] = row.held[j + kChunksAtOnce];
    if constexpr (kNeedsRowAmax) row.amax[j] = row.amax[j + kChunksAtOnce];
  }
}

JITNORM_INLINE void encode_rows(const Arguments& a, Rows& of, const RowEncoder (&encoders)[kRowsAtOnce]) {
#pragma unroll 1
  for (int first = 0; first < kChunksPerLane; first += kChunksAtOnce) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) {
      if constexpr (!kPrefetchesWeight && !kKeepsNormalized) {
        of.parameters[j].take(a, first + j, of.rows[0].index(first + j));
      }
#ifdef JITNORM_GIVEN_SCALES
      float reciprocals[kChunkSize];
      if constexpr (kScalesColumns) {
        if constexpr (!kLoadsScalesEarly) of.scales[j].load(a, of.rows[0].index(first + j));
        of.scales[j].find_reciprocals(reciprocals);
      }
#endif
      JITNORM_UNROLL
      for (int r = 0; r < kRowsAtOnce; ++r) {
        Row& row = of.rows[r];
        if (!row.has_chunk(first + j)) continue;
        const int index = row.index(first + j);
        float y[kChunkSize];
        compute_chunk(row, row.held[j], of.parameters[j], index, y);
        const bool is_last = first + j == kChunksPerLane - 1;
        if (is_last && signals_after(Phase::kComputed)) launch_dependents_after(y[kChunkSize - 1]);
        if constexpr (!kStoresSumEarly) row.source.store_sum(row.held[j], index);
        if constexpr (kKeepsNorm) {
          store_rounded(a.y_out + row_offset(row.number, a.extents, a.y_out_strides), index, y);
        }
#ifdef JITNORM_GIVEN_SCALES
        JITNORM_UNROLL
        for (int i = 0; kScalesColumns && i < kChunkSize; ++i) y[i] = mul_rn(y[i], reciprocals[i]);
#endif
#ifdef JITNORM_BLOCKS_CROSS_WARPS
        encoders[r].encode_chunk(index, y, shared_block_amax(r, index));
#else
        encoders[r].encode_chunk(index, y, kNeedsRowAmax && kHoldsRow ? row.amax[j] : chunk_amax(y, index));
#endif
#ifdef JITNORM_WEIGHTS
        store_other_norms(a, row, row.held[j], of.parameters[j], index);
#endif
      }
    }
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) move_chunks(of.rows[r]);
  }
}

#ifdef JITNORM_HOLDS_HALVES
// The same for heads of which a lane has two chunks that are rotated with each other, or two others.
JITNORM_INLINE void encode_heads(const Arguments& a, Rows& of, const RowEncoder (&encoders)[kRowsAtOnce]) {
  // All lanes load before any overwrites the input: without a norm, no sum synchronizes them.
  if constexpr (!kNormalizes) __syncwarp();
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const Row& row = of.rows[r];
    const bool is_turned = is_turned_pair(row.first_chunk), is_lost = is_turned && !row.angles.is_known;
    const RowStatistic statistic = is_lost ? RowStatistic{0.0f, float_of(0x7fffffffu)} : row.statistic;
    float halves[2][kChunkSize];
    JITNORM_UNROLL
    for (int j = 0; j < 2; ++j) {
      if constexpr (!kPrefetchesWeight) of.parameters[j].load(a, row.index(j));
      normalize_chunk(row.held[j], of.parameters[j], statistic, halves[j]);
    }
    row.angles.turn(halves[0], halves[1], is_turned);
    JITNORM_UNROLL
    for (int j = 0; j < 2; ++j) encoders[r].encode_chunk(row.index(j), halves[j], 0.0f);
  }
}
#endif

// Blocks that cover rows; a division of unsigned numbers is a shift.
JITNORM_INLINE Int64 blocks_of(Int64 rows) { return (UInt64)(rows + kRowsOfBlock - 1) / (UInt64)kRowsOfBlock; }

#ifdef JITNORM_PADS
// The blocks of a matrix, those that pad its scales last.
JITNORM_INLINE Int64 blocks_of_matrix(Int64 rows) {
  return blocks_of(rows) + (rows % kPaddedRowMultiple == 0 ? 0 : kPaddingBlocks);
}

// The share of such a block.
JITNORM_INLINE void pad_matrix(const Arguments& a, Int64 block) {
  wait_for_inputs();
  launch_dependents();
  const int share = (int)(block - blocks_of(a.rows));
  pad_scales(a, share * (kThreads * kBlocksPerRow) + thread_of_cluster(), kPaddingBlocks * kThreads * kBlocksPerRow);
}
#else
JITNORM_INLINE Int64 blocks_of_matrix(Int64 rows) { return blocks_of(rows); }
JITNORM_INLINE void pad_matrix(const Arguments&, Int64) {}
#endif

// Row `number`, and what it is loaded from.
JITNORM_INLINE Row locate_row(const Arguments& a, Int64 number, int thread) {
#ifdef JITNORM_GATHERS
  const Int64 from = is_processed(a, number) ? input_row(a, number) : -1;
  const bool is_there = from >= 0;
  return {is_there ? number : 0, is_there, Source::of(a, is_there ? from : 0), is_there ? thread : kPastRow};
#else
#ifdef JITNORM_HOLDS_HALVES
  // Lanes past the last row repeat it, because it is in their warp: they load it before any lane stores it, and store
  // the same.
  const Int64 at = is_processed(a, number) ? number : a.rows - 1;
  return {at, true, Source::of(a, at), pair_of_lane(thread)};
#else
  const bool is_there = is_processed(a, number);
  const Int64 at = is_there ? number : 0;
#ifdef JITNORM_TWO_SIZES
  return {at, is_there, Source::of(a, at), is_there ? thread : kChunks, a.size / kChunkSize};
#else
  return {at, is_there, Source::of(a, at), is_there ? thread : kPastRow};
#endif
#endif
#endif
}

// Starts loading the chunks of a row.
JITNORM_INLINE void begin_loading(const Arguments& a, Row& row) {
#ifdef JITNORM_ROTATES
  // The compiler then requests the position between chunks of the row, not after them: heads with a norm of 8192 tokens
  // x 4096 went from 49.6 us to 46.9.
  row.angles.locate(a, row.number);
  if constexpr (kAwaitsPositions) {
    row.angles.find(a);
    row.source.input += row.angles.arrival();
  }
#endif
  if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) row.source.load(row.held[j], row.index(j));
  }
#ifdef JITNORM_RECEIVES
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) row.source.send(row.held[j], row.index(j));
#endif
#ifdef JITNORM_ROTATES
  if constexpr (!kAwaitsPositions) row.angles.find(a);
  row.angles.load(a, chunk_of_head(row.index(0)));
#endif
#ifdef JITNORM_MAPS_STREAMS
#ifdef JITNORM_SUMS_FIRST
#else
  row.source.take_given_sum(a, row.number);
  if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) row.source.make(row.held[j], row.index(j));
  }
#endif
#endif
}

// Starts loading rows from `first` on, and what they need besides.
JITNORM_INLINE void begin_loading(const Arguments& a, Rows& of, Int64 first, int thread) {
  // Whether a weight is aligned decides at a branch, before which rows would have to arrive.
  constexpr bool kLoadsWeight = kPrefetchesWeight && !kLoadsWeightInFlight,
                 kLoadsWeightFirst = kIsShifted<Input, kInputAccessBytes>;
  if constexpr (kLoadsWeight && kLoadsWeightFirst) {
    if constexpr (!kPlacesEarly) of.rows[0] = locate_row(a, first, thread);
    load_weights(a, of);
  }
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    if constexpr (!kPlacesEarly) of.rows[r] = locate_row(a, first + r, thread);
    begin_loading(a, of.rows[r]);
  }
#ifdef JITNORM_GIVEN_SCALES
  if constexpr (kLoadsScalesEarly) load_scales(a, of);
#endif
  // If the row waited for the weight, RMSNorm of 16 x 7168 would take 1.88 us, not 1.71.
  if constexpr (kLoadsWeight && !kLoadsWeightFirst) load_weights(a, of);
#ifdef JITNORM_COPIES_PARAMETERS
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) Parameters::copy(a, j, of.rows[0].index(j));
#endif
}

// The steps after the largest magnitude of each row is known, if it is needed.
JITNORM_INLINE void encode_found_rows(const Arguments& a, Rows& of, const RowEncoder::CallScale& call,
                                      const float (&amax)[kRowsAtOnce], int thread) {
  RowEncoder encoders[kRowsAtOnce];
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const Row& row = of.rows[r];
    const bool is_writer = row.is_processed && thread == 0;
    if (kKeepsMean && is_writer) a.mean[row.number] = row.statistic.mean;
    if (kKeepsRstd && is_writer) a.rstd[row.number] = row.statistic.rstd;
#ifdef JITNORM_MAPS_STREAMS
#ifdef JITNORM_SUMS_FIRST
    if (is_writer) leave_rstd(a, row.number, row.source.rstd);
#endif
#endif
    encoders[r] = RowEncoder::begin_row(a, row.number, call, amax[r], is_writer);
  }
#ifdef JITNORM_HOLDS_HALVES
  encode_heads(a, of, encoders);
#else
  encode_rows(a, of, encoders);
#endif
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    if (of.rows[r].is_processed) encoders[r].end_row(thread);
  }
}

// The steps after the rows' statistics are known.
JITNORM_INLINE void finish_rows(const Arguments& a, Rows& of, const RowEncoder::CallScale& call, int thread, int warp,
                                int lane) {
  float amax[kRowsAtOnce] = {};
  if constexpr (kNeedsRowAmax) find_amax(a, of, amax, warp, lane);
#ifdef JITNORM_DIVIDES
  // In the windows of all ranks, or where this one wants it. Without a sum, only the windows of others must be ready.
  constexpr int kFirst = kSumsRanks && kSharesRows ? 1 : 0, kEnd = kSharesRows ? kFirst + kRanks : 1;
#pragma unroll 1
  for (int p = kFirst; p < kEnd; ++p) {
    if (!kSumsRanks && p == 1 && !await_ready(a)) break;
    encode_found_rows(with_outputs_of(a, (workspace_of(a).rank + p) % kRanks), of, call, amax, thread);
  }
#else
  encode_found_rows(a, of, call, amax, thread);
#endif
}

// Processes block `block` of a row set; the blocks of a cluster, which share a row, have the same number. Calls
// meanwhile() while the rows, if any, are being loaded.
template <typename Visit>
JITNORM_INLINE void process_rows(const Arguments& a, Int64 block, Visit meanwhile) {
  const int thread = thread_of_row();
  const int lane = threadIdx.x % kLanesPerRow;
  const int warp = thread / kLanesPerRow;
#ifdef JITNORM_DIVIDES
  const Int64 first_of_block = a.first + block * kRowsOfBlock;
#else
  const Int64 first_of_block = block * kRowsOfBlock;
#endif
  const Int64 first = first_of_block + (kRowsPerBlock == 1 ? 0 : threadIdx.x / kThreadsPerRow * kRowsAtOnce);

  // A block without rows does not wait for them. Checking before the wait lets the parameters arrive while the previous
  // kernel still runs: RMSNorm of 16 x 7168 went from 1.85 us to 1.74.
  if (!is_processed(a, first_of_block)) {
    pad_matrix(a, block);
    return;
  }
  expect_exchanges();
  if (kFetchesEarly && is_processed(a, first)) fetch_early(a, first, thread);
  Rows of;
  if constexpr (kPlacesEarly) {
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      of.rows[r] = locate_row(a, first + r, thread);
      compute_places(of.rows[r].source, of.rows[r].index(0));
    }
  }
  await_blocks();
  wait_for_inputs();
  bool has_rows = false;
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) has_rows |= is_processed(a, first + r);
  // A block without rows may exit early; in a block with several rows, the shuffles below need all lanes.
  if (kRowsPerBlock == 1 && !has_rows) return;
#ifdef JITNORM_HOLDS_HALVES
  if (__ballot_sync(kFullWarp, has_rows) == 0) return;  // no warp waits for another
#endif

  signal_after(Phase::kFound);
  const auto given = RowEncoder::given(a);  // before the row, whose latency then hides what is computed from it
  begin_loading(a, of, first, thread);
  meanwhile();
#ifdef JITNORM_RECEIVES
  receive_rows(of);
#endif
#ifdef JITNORM_PAGES
  const RowEncoder::CallScale call = RowEncoder::prepare(a, of.rows[0].number);
#else
  const RowEncoder::CallScale call = RowEncoder::prepare(a, given);
#endif
  signal_after(Phase::kRequested);
  find_statistics(a, of, warp, lane, [] {});
  finish_rows(a, of, call, thread, warp, lane);
  signal_after(Phase::kStored);
}

JITNORM_INLINE void process_rows(const Arguments& a, Int64 block) {
  process_rows(a, block, [] {});
}
