// The combine stage of rows whose inputs are summed over ranks, as processes or threads that share memory.
#pragma once

#include "../common/workspace.h"
#include "combine.h"

#ifdef JITNORM_REDUCES
extern "C" int clock_gettime(int clock, Int64* seconds_and_nanoseconds);
extern "C" int sched_yield();

JITNORM_INLINE UInt64 nanoseconds() {
  constexpr int kMonotonic = 1;
  Int64 time[2];
  clock_gettime(kMonotonic, time);
  return (UInt64)time[0] * 1000000000 + (UInt64)time[1];
}

template <typename T>
JITNORM_INLINE T load_shared(const T* at) {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}

template <typename T>
JITNORM_INLINE void store_shared(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

JITNORM_INLINE UInt64 epoch_of(Workspace& w) { return calls_before(load_shared(&w.progress)); }
JITNORM_INLINE bool has_failed(Workspace& w) { return load_shared(&w.progress) & kFailed; }

// Waits until is_there(), but no longer than the workspace allows, and not after another wait of the rank has failed.
template <typename IsThere>
JITNORM_INLINE bool wait_until(Workspace& w, IsThere is_there) {
  UInt64 start = 0;
  while (!is_there()) {
    if (has_failed(w)) return false;
    const UInt64 now = nanoseconds();
    if (start == 0) start = now;
    if (now - start > w.deadline) return false;
    sched_yield();
  }
  return true;
}

// Reports the number of the call in which something failed to the host, for each rank.
JITNORM_INLINE void report(Workspace& w, UInt64* of_ranks, int rank, UInt64 epoch) {
  store_shared(&of_ranks[rank], epoch + 1);
  __atomic_fetch_or(&w.progress, kFailed, __ATOMIC_RELAXED);
}

// Words of a row in transit.
typedef UInt64 Word;
constexpr int kSentWords = kSentBytes / (int)sizeof(Word);
constexpr Word kNotYetWord = (Word)kNotYet << 32 | kNotYet;

// Whether an element of the word has not come: is -0.
JITNORM_INLINE bool is_incomplete(Word word) {
  constexpr Word kLowBits = sizeof(Input) == 2 ? 0x0001000100010001u : 0x0000000100000001u;
  const Word difference = word ^ kNotYetWord;  // an element of zeros borrows from the bit above
  return ((difference - kLowBits) & ~difference & kNotYetWord) != 0;
}

// A row in its transmitted form: whole chunks, with +0 in place of -0.
struct SentRow {
  union {
    Word words[kSentWords];
    UInt16 halves[kSentBytes / 2];
    UInt32 floats[kSentBytes / 4];
  };
};

// Ends a row of kHiddenSize elements.
JITNORM_INLINE void finish_sent(SentRow& sent) {
  constexpr int kBytes = kHiddenSize * (int)sizeof(Input);
  __builtin_memset((UInt8*)sent.words + kBytes, 0, kSentBytes - kBytes);
  for (int i = 0; i < kChunks * kChunkSize; ++i) {
    if constexpr (sizeof(Input) == 2) {
      sent.halves[i] = sent.halves[i] == 0x8000u ? 0 : sent.halves[i];
    } else {
      sent.floats[i] = sent.floats[i] == kNotYet ? 0 : sent.floats[i];
    }
  }
}

JITNORM_INLINE void make_sent(const Arguments& a, Int64 row, SentRow& sent) {
  const Input* input = a.input + row_offset(row, a.extents, a.input_strides);
  __builtin_memcpy(sent.words, input, kHiddenSize * sizeof(Input));
  finish_sent(sent);
}

// Whether a rank sums a row of all ranks' sum.
JITNORM_INLINE bool is_summed_by(const Arguments& a, Int64 rank, Int64 row) {
#ifdef JITNORM_SCATTERS
  return row / rows_of_rank(a) == rank;
#else
  return true;
#endif
}

// Sends a row of all ranks' sum to the ranks that sum it, and its mark to all.
JITNORM_INLINE void send_row(const Arguments& a, Workspace& w, UInt64 epoch, Int64 row, const SentRow& sent) {
  const Slots slots = slots_of(w);
  const Int64 slot = slot_number(slots, epoch, w.rank, row);
  for (int p = 1; p < kRanks; ++p) {
    UInt8* window = slots.from_own[p];
    Word* to = reinterpret_cast<Word*>(window + row_bytes_offset(slots, slot));
    const bool is_wanted = is_summed_by(a, (w.rank + p) % kRanks, row);
    for (int i = 0; i < kSentWords && is_wanted; ++i) store_shared(to + i, sent.words[i]);
    store_shared(reinterpret_cast<UInt64*>(window + mark_offset(slot)), mark_of(epoch, all_rows(a)));
  }
}

// Waits for a row of another rank, or for its mark alone if this one does not sum it; false if it does not arrive.
JITNORM_INLINE bool receive_row(const Arguments& a, Workspace& w, UInt64 epoch, Int64 row, int rank,
                                SentRow& received) {
  const Slots slots = slots_of(w);
  const Int64 slot = slot_number(slots, epoch, rank, row);
  const UInt8* window = slots.from_own[0];
  const UInt64* mark = reinterpret_cast<const UInt64*>(window + mark_offset(slot));
  const UInt64 expected = mark_of(epoch, all_rows(a));
  Arrival arrival = Arrival::kNotYet;
  const bool has_mark =
      wait_until(w, [&] { return (arrival = arrival_of(load_shared(mark), expected)) != Arrival::kNotYet; });
  if (arrival == Arrival::kOther) report(w, w.status->disagreeing, rank, epoch);
  const Word* from = reinterpret_cast<const Word*>(window + row_bytes_offset(slots, slot));
  bool is_there = has_mark && arrival == Arrival::kThere;
  for (int i = 0; i < kSentWords && is_there && is_summed_by(a, w.rank, row); ++i) {
    is_there = wait_until(w, [&] { return !is_incomplete(received.words[i] = load_shared(from + i)); });
  }
  if (!is_there && arrival != Arrival::kOther && !has_failed(w)) report(w, w.status->late, rank, epoch);
  return is_there;
}

JITNORM_INLINE void add_share(const Input* share, Tile* h) {
  for (int t = 0; t < kRowTiles; ++t) {
    Tile x;
    load_tile(share, kHiddenSize, t, x);
    for_each_value([&](int e, int k) { h[t].at[e][k] = added_share(h[t].at[e][k], x.at[e][k]); });
  }
}

// Adds the share of each rank, which is in its window, to a row of zeros.
JITNORM_INLINE void add_shares_in_windows(const Arguments& a, Int64 row, Tile* h) {
  const Input* own = a.input + row_offset(row, a.extents, a.input_strides);
  for (int rank = 0; rank < kRanks; ++rank) add_share(at_distance(own, distance_of(workspace_of(a), rank)), h);
}

#ifdef JITNORM_DIVIDES
// rows_of_rank() for tensors that may have only this rank's rows.
JITNORM_INLINE Int64 rows_of_each(const Arguments& a) {
  return kSharesRows ? rows_of_rank(a) : (a.whole_rows + kRanks - 1) / kRanks;
}

JITNORM_INLINE void add_shares(const Arguments& a, Int64 row, Tile* h) {
  if constexpr (kSumsRanks) return add_shares_in_windows(a, row, h);
  const Input* own = a.input + row_offset(row, a.extents, a.input_strides);
  for (int t = 0; t < kRowTiles; ++t) load_tile(own, kHiddenSize, t, h[t]);
}
#else
#ifdef JITNORM_PASSES_SUMS
JITNORM_INLINE Word* sent_words_of_sum(const Arguments& a, Int64 rank, Int64 row) {
  return reinterpret_cast<Word*>(sum_of_row(workspace_of(a), rows_of_rank(a), rank, row));
}

// Takes the sum of another rank's row, and clears its slot for the next call; false if it does not arrive.
JITNORM_INLINE bool receive_sum(const Arguments& a, Int64 row, SentRow& told) {
  Workspace& w = workspace_of(a);
  const int owner = (int)(row / rows_of_rank(a));
  const UInt64 epoch = epoch_of(w), mark = mark_of_places(a, epoch, nullptr);
  Word* from = sent_words_of_sum(a, w.rank, row);
  Arrival call = Arrival::kNotYet;
  const auto has_come = [&](int i) { return !is_incomplete(told.words[i] = load_shared(from + i)); };
  for (int i = 0; i < kSentWords; ++i) {
    const bool is_over = !wait_until(w, [&] {
      if (has_come(i) || call == Arrival::kOther) return true;
      // Loaded before the word is loaded again: the mark of a later call comes after the words of this one.
      call = arrival_of(__atomic_load_n(step_of(w.windows[w.rank], Step::kReady, owner), __ATOMIC_ACQUIRE), mark);
      return false;
    });
    if (!is_incomplete(told.words[i])) continue;
    if (!is_over) report(w, w.status->disagreeing, owner, epoch);
    if (is_over && !has_failed(w)) report(w, w.status->late, owner, epoch);
    return false;
  }
  for (int i = 0; i < kSentWords; ++i) store_shared(from + i, kNotYetWord);
  return true;
}

// Computes the sum of this rank's row and sends it to the others; for any other row, takes the sum that was sent. If it
// does not arrive, the row is undefined, and the host is told.
JITNORM_INLINE void add_shares(const Arguments& a, Int64 row, Tile* h) {
  static thread_local SentRow told;
  Workspace& w = workspace_of(a);
  if (!is_own_row(a, row)) {
    if (receive_sum(a, row, told)) add_share(reinterpret_cast<const Input*>(told.words), h);
    return;
  }
  add_shares_in_windows(a, row, h);
  for (int t = 0; t < kRowTiles; ++t) store_tile(h[t], t, reinterpret_cast<Input*>(told.words));
  finish_sent(told);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == w.rank) continue;
    Word* to = sent_words_of_sum(a, rank, row);
    for (int i = 0; i < kSentWords; ++i) store_shared(to + i, told.words[i]);
  }
}
#else
struct SharedRows {
  SentRow sent, received;
};

// Adds the share of each rank to a row of zeros. If a rank does not arrive, the row is undefined, and the host is told.
JITNORM_INLINE void add_shares(const Arguments& a, Int64 row, Tile* h) {
  static thread_local SharedRows rows;
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(w);
  const bool is_good = !has_failed(w);
  const Int64 of_all = first_row(a) + row;
  make_sent(a, row, rows.sent);
  if (is_good) send_row(a, w, epoch, of_all, rows.sent);
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool is_own = rank == w.rank;
    if (!is_own && !(is_good && receive_row(a, w, epoch, of_all, rank, rows.received))) continue;
    add_share(reinterpret_cast<const Input*>((is_own ? rows.sent : rows.received).words), h);
  }
}

#ifdef JITNORM_SCATTERS
// Sends a row to the rank that sums it. All await each other's mark of it, so that no rank is more than a call ahead.
JITNORM_INLINE void pass_row_on(const Arguments& a, Int64 row) {
  static thread_local SharedRows rows;
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(w);
  if (has_failed(w)) return;
  Arguments whole = a;
  whole.input = a.whole;
  for (int d = 0; d < kRowDims; ++d) whole.input_strides[d] = a.whole_strides[d];
  make_sent(whole, row, rows.sent);
  send_row(a, w, epoch, row, rows.sent);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != w.rank && !receive_row(a, w, epoch, row, rank, rows.received)) return;
  }
}
#endif
#endif
#endif

// The sum of the inputs of all ranks, in rank order, and of a residual; it may also be stored, rounded to the input's
// type.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kReduced>(const Arguments& a, Int64 row, Tile* h) {
  for (int t = 0; t < kRowTiles; ++t) h[t] = Tile{};
  add_shares(a, row, h);
  for (int t = 0; t < kRowTiles; ++t) {
    Tile residual{};
    if constexpr (kHasResidual) {
      load_tile(a.residual + row_offset(row, a.extents, a.residual_strides), kHiddenSize, t, residual);
    }
    for_each_value([&](int e, int k) { h[t].at[e][k] = with_residual(h[t].at[e][k], residual.at[e][k]); });
    if constexpr (kStoresSum) store_tile(h[t], t, a.residual_out + row_offset(row, a.extents, a.residual_out_strides));
  }
}

// Prepares what the previous call used for another call: parts `first` to `last` of `all`.
JITNORM_INLINE void clear_last(const Arguments& a, Int64 first, Int64 last, Int64 all) {
  Workspace& w = workspace_of(a);
  if (has_failed(w)) return;
  const UInt64 before = epoch_of(w) + kBuffers - 1;
  const Int64 rows = w.used_rows[before % kBuffers], words = w.used_bytes[before % kBuffers] / (Int64)sizeof(Word);
  const Slots slots = slots_of(w);
  const auto start = [&](Int64 row) { return rows * row / all; };
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == w.rank) continue;
    for (Int64 row = start(first); row < start(last); ++row) {
      const Int64 slot = slot_number(slots, before, rank, row);
      Word* at = reinterpret_cast<Word*>(slots.from_own[0] + row_bytes_offset(slots, slot));
      for (Int64 i = 0; i < words; ++i) store_shared(at + i, kNotYetWord);
    }
  }
}

// The last step of a part of a call: announces that it will not read the number of calls again.
JITNORM_INLINE void end_part(Workspace& w, UInt64 epoch, Int64 sent_rows, Int64 first, Int64 last, Int64 all) {
  if (first == 0) {
    w.used_rows[epoch % kBuffers] = sent_rows;
    w.used_bytes[epoch % kBuffers] = kSentBytes;
  }
  __atomic_fetch_add(&w.progress, progress_of(first == 0, last - first, all), __ATOMIC_ACQ_REL);
}

// Tells the other ranks that a step is finished for all rows.
JITNORM_INLINE void announce(Workspace& w, Step step, UInt64 mark) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != w.rank) __atomic_store_n(step_of(w.windows[rank], step, w.rank), mark, __ATOMIC_RELEASE);
  }
}

// Waits until another rank has set a mark; false if it does not.
JITNORM_INLINE bool await_mark(Workspace& w, const UInt64* at, UInt64 mark, int rank, UInt64 epoch) {
  Arrival arrival = Arrival::kNotYet;
  wait_until(w, [&] {
    arrival = arrival_of(__atomic_load_n(at, __ATOMIC_ACQUIRE), mark);
    return arrival != Arrival::kNotYet;
  });
  if (arrival == Arrival::kOther) report(w, w.status->disagreeing, rank, epoch);
  if (arrival == Arrival::kNotYet && !has_failed(w)) report(w, w.status->late, rank, epoch);
  return arrival == Arrival::kThere;
}

// Waits until all other ranks have said so; false if one does not.
JITNORM_INLINE bool await_others(Workspace& w, Step step, UInt64 mark, UInt64 epoch) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != w.rank && !await_mark(w, step_of(w.windows[w.rank], step, rank), mark, rank, epoch)) return false;
  }
  return true;
}
#endif
