// The combine stage of rows whose inputs are summed over ranks.
#pragma once

#include "combine.cuh"
#include "ranks.cuh"
#include "sent_chunks.cuh"

#ifdef JITNORM_REDUCES
#ifdef JITNORM_RECEIVES
#else
// The sum of a chunk over the windows of all ranks, in rank order.
JITNORM_INLINE void add_shares(Chunk<float, 16>& sum, const Workspace& w, const Input* input, int index) {
  constexpr int kAtOnce = kRanks < 4 ? kRanks : 4;  // more would exceed the registers
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) sum.elements[i] = 0.0f;
  JITNORM_UNROLL
  for (int first = 0; first < kRanks; first += kAtOnce) {
    InputChunk shares[kAtOnce];
    JITNORM_UNROLL
    for (int r = 0; r < kAtOnce && first + r < kRanks; ++r) {
      load_chunk(shares[r], at_distance(input, distance_of(w, first + r)), index);
    }
    JITNORM_UNROLL
    for (int r = 0; r < kAtOnce && first + r < kRanks; ++r) {
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) sum.elements[i] = added_share(sum.elements[i], value_of(shares[r], i));
    }
    if (first + kAtOnce < kRanks) asm volatile("" ::: "memory");  // not all loads before any sum
  }
}
#endif

#ifdef JITNORM_DIVIDES
// The sum of a chunk over the windows of all ranks, in rank order, and of a residual; it may also be stored for all of
// them, rounded to the input's type.
template <>
struct RowSource<Combine::kReduced> {
  typedef Chunk<float, 16> Held;

  const Input* input;
  const Input* residual;
  Input* sum;
  const Workspace* workspace;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides),
            a.residual + row_offset(row, a.extents, a.residual_strides),
            a.residual_out + row_offset(row, a.extents, a.residual_out_strides), &workspace_of(a)};
  }

  JITNORM_INLINE void load(Held& h, int index) const {
    InputChunk added = {};
    if constexpr (kHasResidual) load_chunk(added, residual, index);
    if constexpr (kSumsRanks) {
      add_shares(h, *workspace, input, index);
    } else {
      InputChunk own;
      load_chunk(own, input, index);
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) h.elements[i] = value_of(own, i);
    }
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.elements[i] = with_residual(h.elements[i], value_of(added, i));
  }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const Held& h, int index) const {
    if constexpr (!kStoresSum) return;
    const Workspace& w = *workspace;
#pragma unroll 1
    for (int p = 0; p < (kSharesSum ? kRanks : 1); ++p) {
      store_rounded(at_distance(sum, distance_of(w, (w.rank + p) % kRanks)), index, h.elements);
    }
  }
};
#else
#ifdef JITNORM_PASSES_SUMS
// The sum over all ranks, which the row's owner computes and sends to the others, and of a residual; it may also be
// stored, rounded to the input's type. If it does not arrive, the row is undefined, and the host is told.
template <>
struct RowSource<Combine::kReduced> {
  typedef Chunk<float, 16> Held;

  const Input* input;
  const Input* residual;
  Input* sum;
  Workspace* workspace;
  UInt64 epoch, mark;
  Int64 row, each;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    Workspace& w = workspace_of(a);
    const UInt64 epoch = epoch_of(a);
    return {a.input + row_offset(row, a.extents, a.input_strides),
            a.residual + row_offset(row, a.extents, a.residual_strides),
            a.residual_out + row_offset(row, a.extents, a.residual_out_strides),
            &w,
            epoch,
            mark_of_places(a, epoch, nullptr),
            row,
            rows_of_rank(a)};
  }

  JITNORM_INLINE void load(Held& h, int index) const {
    const Workspace& w = *workspace;
    InputChunk added = {};
    if constexpr (kHasResidual) load_chunk(added, residual, index);
    SentChunk told = {};
    if (row / each == w.rank) {
      add_shares(h, w, input, index);
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) round_to(h.elements[i], told.elements[i]);
      send(told, index);
    } else if (index < kChunks) {
      receive(told, index);
    }
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.elements[i] = with_residual(value_of(told, i), value_of(added, i));
  }

  JITNORM_INLINE void send(const SentChunk& told, int index) const {
    const Workspace& w = *workspace;
    if (index >= kChunks) return;
#pragma unroll 1
    for (int p = 1; p < kRanks; ++p) store_sent(sum_of_row(w, each, (w.rank + p) % kRanks, row), index, told);
  }

  // Clears the chunk's slot for the next call.
  JITNORM_INLINE void receive(SentChunk& told, int index) const {
    Workspace& w = *workspace;
    const int owner = (int)(row / each);
    UInt8* at = sum_of_row(w, each, w.rank, row);
    Wait wait;
    Arrival call = Arrival::kNotYet;
    while (!load_sent(told, at, index)) {
      if (call == Arrival::kOther || wait.is_over(w)) {
        told = {};
        if (call == Arrival::kOther) {
          report(w, w.status->disagreeing, owner, epoch);
        } else if (!has_failed(w)) {
          report(w, w.status->late, owner, epoch);
        }
        return;
      }
      // Loaded before the chunk is loaded again: the mark of a later call comes after the sums of this one.
      if (index == 0) call = arrival_of(load_acquire(step_of(w.from_own[0], Step::kReady, owner)), mark);
    }
    const uint4 not_yet = {kNotYet, kNotYet, kNotYet, kNotYet};
    JITNORM_UNROLL
    for (int k = 0; k < kSentAccesses; ++k) store_shared(reinterpret_cast<uint4*>(at + place_of(index, k)), not_yet);
  }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const Held& h, int index) const {
    if constexpr (kStoresSum) store_rounded(sum, index, h.elements);
  }
};
#else
// This rank's input and the residual as they are loaded, and their sum.
struct ReducedChunk {
  union {
    InputChunk input;
    SentChunk sent;
  };
  InputChunk residual;
  Chunk<float, 16> sum;
};

JITNORM_INLINE float value_of(const ReducedChunk& h, int i) { return h.sum.elements[i]; }
JITNORM_INLINE void forget_unpacked(ReducedChunk&) {}

// The sum of the inputs of all ranks, in rank order, and of a residual; it may also be stored, rounded to the input's
// type. If a rank does not arrive, the row is undefined, and the host is told.
template <>
struct RowSource<Combine::kReduced> {
  typedef ReducedChunk Held;

  const Input* input;
  const Input* residual;
  Input* sum;
  Workspace* workspace;
  Slots slots;
  UInt64 epoch;
  bool is_good;
  Int64 rows, row;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides),
            a.residual + row_offset(row, a.extents, a.residual_strides),
            a.residual_out + row_offset(row, a.extents, a.residual_out_strides),
            &workspace_of(a),
            a.slots,
            epoch_of(a),
            !had_failed(a),
            all_rows(a),
            first_row(a) + row};
  }

#ifdef JITNORM_SCATTERS
  // A row that another rank sums, of which nothing else is here.
  JITNORM_INLINE static RowSource of_other(const Arguments& a, Int64 row) {
    RowSource found = of(a, 0);
    found.input = a.whole + row_offset(row, a.extents, a.whole_strides);
    found.row = row;
    return found;
  }
#endif

  JITNORM_INLINE void load(Held& h, int index) const {
    load_chunk(h.input, input, index);
    if constexpr (kHasResidual) load_chunk(h.residual, residual, index);
  }

#ifdef JITNORM_SCATTERS
  // Sends the mark of the row to all; the row itself is here.
  JITNORM_INLINE void send(const Held&, int index) const {
    if (index == 0 && is_good) send_mark();
  }

  // Sends a chunk of the row to the rank that sums it.
  JITNORM_INLINE void send_to_owner(const SentChunk& chunk, int index) const {
    const Int64 owner = row / ((rows + kRanks - 1) / kRanks);
    UInt8* window = slots.from_own[0];
    JITNORM_UNROLL
    for (int p = 1; p < kRanks; ++p) {
      if ((slots.rank + p) % kRanks == owner) window = slots.from_own[p];
    }
    store_sent(window + row_bytes_offset(slots, slot_number(slots, epoch, slots.rank, row)), index, chunk);
  }
#else
  // Sends a chunk to all, with the first one also the mark of the row.
  JITNORM_INLINE void send(const Held& h, int index) const {
    if (index >= kChunks || !is_good) return;
    const Int64 slot = slot_number(slots, epoch, slots.rank, row);
    JITNORM_UNROLL
    for (int p = 1; p < kRanks; ++p) store_sent(slots.from_own[p] + row_bytes_offset(slots, slot), index, h.sent);
    if (index == 0) send_mark();
  }
#endif

  JITNORM_INLINE void send_mark() const {
    const Int64 offset = mark_offset(slot_number(slots, epoch, slots.rank, row));
    JITNORM_UNROLL
    for (int p = 1; p < kRanks; ++p) {
      store_shared(reinterpret_cast<UInt64*>(slots.from_own[p] + offset), mark_of(epoch, rows));
    }
  }

  // What other ranks sent of a chunk and, with the first one, the marks of the row: everything missing is polled at
  // once.
  struct Received {
    uint4 shares[kRanks][kSentAccesses];
    UInt64 marks[kRanks];
  };

  JITNORM_INLINE UInt32 look(Received& from, int index) const {
    const Int64 first = slot_number(slots, epoch, 0, row);
    const UInt8* shares = slots.from_own[0] + row_bytes_offset(slots, first);
    const UInt8* marks = slots.from_own[0] + mark_offset(first);
    Int64 apart = slots.rows;                                  // from the slot of a rank to that of the next
    if constexpr (kRanks > 4) asm volatile("" : "+l"(apart));  // else registers would keep the addresses of all
    UInt32 missing = 0;
    JITNORM_UNROLL
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == slots.rank) continue;
      const UInt8* at = shares + rank * apart * slots.row_bytes;
      JITNORM_UNROLL
      for (int k = 0; k < kSentAccesses; ++k) {
        from.shares[rank][k] = load_shared(reinterpret_cast<const uint4*>(at + place_of(index, k)));
      }
      if (index == 0) {
        from.marks[rank] = load_shared(reinterpret_cast<const UInt64*>(marks) + rank * apart);
      }
    }
    JITNORM_UNROLL
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == slots.rank) continue;
      UInt32 of_rank = 0;
      JITNORM_UNROLL
      for (int k = 0; k < kSentAccesses; ++k) of_rank |= missing_of(from.shares[rank][k]);
      if (index == 0) of_rank |= arrival_of(from.marks[rank], mark_of(epoch, rows)) != Arrival::kThere;
      if (of_rank) missing |= 1u << rank;
    }
    return missing;
  }

  // The ranks whose calls differ, according to a row's first chunk.
  JITNORM_INLINE UInt32 disagreeing(const Received& from, int index) const {
    UInt32 found = 0;
    JITNORM_UNROLL
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool is_other =
          index == 0 && rank != slots.rank && arrival_of(from.marks[rank], mark_of(epoch, rows)) == Arrival::kOther;
      if (is_other) found |= 1u << rank;
    }
    return found;
  }

  JITNORM_INLINE void report_missing(UInt32 late, UInt32 others) const {
    Workspace& w = *workspace;
#pragma unroll 1
    for (int rank = 0; rank < kRanks; ++rank) {
      if (others >> rank & 1) {
        report(w, w.status->disagreeing, rank, epoch);
      } else if (late >> rank & 1) {
        report(w, w.status->late, rank, epoch);
      }
    }
  }

  JITNORM_INLINE void receive(Held& h, int index) const {
    Received from;
    if (index < kChunks && is_good) {
      Wait wait;
      UInt32 missing, others = 0;
      while ((missing = look(from, index)) != 0 && (others = disagreeing(from, index)) == 0 &&
             !wait.is_over(*workspace)) {
      }
      if (missing && !(others == 0 && has_failed(*workspace))) report_missing(missing, others);
    }
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.sum.elements[i] = 0.0f;
    JITNORM_UNROLL
    for (int rank = 0; rank < kRanks; ++rank) {
      SentChunk share = {};  // zeros past the row, and for a rank that has failed
      JITNORM_UNROLL
      for (int k = 0; k < kSentAccesses; ++k) {
        if (index < kChunks && is_good) share.accesses[k] = from.shares[rank][k];
        if (rank == slots.rank) share.accesses[k] = h.sent.accesses[k];
      }
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        h.sum.elements[i] = added_share(h.sum.elements[i], value_of(share, i));
      }
    }
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      h.sum.elements[i] = with_residual(h.sum.elements[i], kHasResidual ? value_of(h.residual, i) : 0.0f);
    }
  }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const Held& h, int index) const {
    if constexpr (kStoresSum) store_rounded(sum, index, h.sum.elements);
  }
};

#ifdef JITNORM_SCATTERS
// Sends a row to the rank that sums it. All await each other's mark of it, so that no rank is more than a call ahead.
// All threads of the block take part. Calls meanwhile() while the marks are on their way.
template <typename Visit>
JITNORM_INLINE void pass_row_on(const Arguments& a, Int64 row, Visit meanwhile) {
  const RowSource<Combine::kReduced> source = RowSource<Combine::kReduced>::of_other(a, row);
  for (int index = thread_of_row(); index < kChunks; index += kThreadsPerRow) {
    union {
      InputChunk input;
      SentChunk sent;
    };
    load_chunk(input, source.input, index);
    if (source.is_good) source.send_to_owner(sent, index);
  }
  if (thread_of_row() == 0 && source.is_good) source.send_mark();
  meanwhile();
  const int rank = thread_of_row();
  if (rank < kRanks && rank != a.slots.rank && source.is_good) {
    const UInt8* mark = a.slots.from_own[0] + mark_offset(slot_number(a.slots, source.epoch, rank, row));
    await_mark(workspace_of(a), reinterpret_cast<const UInt64*>(mark), mark_of(source.epoch, source.rows), rank,
               source.epoch);
  }
  __syncthreads();
}
#endif
#endif
#endif
#endif
