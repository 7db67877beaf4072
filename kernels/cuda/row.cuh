// A thread's part of a row from its only load on, and how it goes through the chunks.
#pragma once

#include "parameters.cuh"
#include "rotation.cuh"
#include "row_reduce.cuh"

static_assert(kRowsAtOnce == 1 || kRowsPerBlock == 1 || kWarpsPerRow == 1, "rows of several warps share no block");

// Rows that a block works on at once.
constexpr int kRowsOfBlock = kRowsPerBlock * kRowsAtOnce;

// One of the rows that a thread works on.
struct Row {
  Int64 number;
  bool is_processed;  // otherwise the thread only takes part for the others: it loads and stores nothing
  Source source;
  int first_chunk;  // this thread's first; the others follow, a row's threads apart, or form a pair with it
#ifdef JITNORM_TWO_SIZES
  int chunks;  // of the row
#endif
  HeldChunk held[kHeldChunks];
  float amax[kHeldChunks];  // the largest |y| of each chunk, if that of the row is needed
  RowStatistic statistic;
#ifdef JITNORM_ROTATES
  ChunkAngles angles;  // of all its chunks, which are at the same place in different heads
#endif

#ifdef JITNORM_TWO_SIZES
  JITNORM_INLINE int index(int slot) const {
    const int at = first_chunk + slot * kThreadsPerRow;
    return at < chunks ? at : kChunks;
  }

  // Whether lanes of the warp have such a chunk; the same for all of them, because they exchange values in it. In a
  // short row, most warps have none: without this check, a row of 1024 columns took as many instructions as one of 4096
  // in the same launch.
  JITNORM_INLINE bool has_chunk(int slot) const { return thread_of_row() / 32 * 32 + slot * kThreadsPerRow < chunks; }
#else
#ifdef JITNORM_HOLDS_HALVES
  JITNORM_INLINE int index(int slot) const { return chunk_of_pair(first_chunk, slot); }
#else
  JITNORM_INLINE int index(int slot) const { return first_chunk + slot * kThreadsPerRow; }
#endif

  // The same for a schedule that skips chunks; with others, lanes compute zeros.
  JITNORM_INLINE bool has_chunk(int slot) const {
    constexpr int kSlotsOfAll = kGroups / kWarpsPerRow;
    return !kSkipsChunks || slot < kSlotsOfAll || thread_of_row() / 32 + slot * kWarpsPerRow < kGroups;
  }
#endif
};

// Whether the norm replaces a row that has room for floats once its largest magnitude is known: then the weight, which
// is as long as the row, need not be loaded again to encode it, nor activations computed again.
constexpr bool kKeepsNormalized =
    kNeedsRowAmax && kNormalizes && kHoldsRow && RoomForFloats<HeldChunk>::kExists && (kStoresSumEarly || !kStoresSum);

struct Rows {
  Row rows[kRowsAtOnce];
  UInt32 turn = 0;  // how often the block has had others before
  Parameters parameters[kChunksAtOnce];
#ifdef JITNORM_GIVEN_SCALES
  ColumnScales scales[kChunksAtOnce];
#endif
};

#ifdef JITNORM_RECEIVES
// Computes the rows from what has been loaded, and from what other ranks send.
JITNORM_INLINE void receive_rows(Rows& of) {
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) {
    Row& row = of.rows[r];
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) row.source.receive(row.held[j], row.index(j));
  }
}
#endif

template <typename Held>
JITNORM_INLINE void keep_normalized(Held& h, const float (&y)[kChunkSize]) {
  if constexpr (kKeepsNormalized) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) float_in(h, i) = y[i];
  }
}

// Calls visit(chunk, slot) for each chunk of the thread, before any of them is consumed.
template <typename Visit>
JITNORM_INLINE void visit_chunks(Row& row, Visit visit) {
  if constexpr (kHoldsRow) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      visit(row.held[j], j);
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < kChunksPerLane; ++j) {
      row.source.load(row.held[0], row.index(j));
      visit(row.held[0], j);
    }
  }
}

JITNORM_INLINE void normalize_chunk(const HeldChunk& h, const Parameters& p, RowStatistic statistic,
                                    float (&y)[kChunkSize]) {
#ifdef JITNORM_REORDERS_VALUES
  HeldChunk reordered = h;
  reorder_quarters(reordered.words);
  values_of(reordered, y);
#else
  values_of(h, y);
#endif
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; i += kPacked) {
    const Packed factor = packed_from([&](int k) { return p.factor(k); }, i);
    const Packed bias = packed_from([&](int k) { return kHasBias ? value_of(p.bias, k) : 0.0f; }, i);
    unpack(normalize(packed_at(y + i), statistic, factor, bias), y + i);
#ifdef JITNORM_MODULATES
    JITNORM_UNROLL
    for (int k = i; k < i + kPacked; ++k) {
      y[k] = modulated(y[k], value_of(h.scale, k), value_of(p.scale_bias, k), value_of(h.shift, k),
                       value_of(p.shift_bias, k));
    }
#endif
  }
#ifdef JITNORM_MODULATES
#else
#ifdef JITNORM_FINISHES
  finish(h, y);
#endif
#endif
}
