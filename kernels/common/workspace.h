// What ranks share to sum their inputs: each rank's private control block, and its window of memory, which all of them
// write. docs/parallel.md describes the protocol.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rows.h"

#ifdef JITNORM_REDUCES
// A call is less than 2^20 parts: blocks of threads, or rows on a CPU. So calls are counted up to 2^44.
constexpr int kPartBits = 20;
// Once a rank has failed, it neither sends nor waits, so that the others notice, too.
constexpr UInt64 kFailed = (UInt64)1 << 63;

// Words that the host sees: for each rank, one more than the number of the call in which it was too late, or had other
// arguments; 0 if there was none.
struct CallStatus {
  UInt64 late[kMaxRanks], disagreeing[kMaxRanks];
};

struct Workspace {
  Int64 rank;
  UInt64 deadline;  // of a wait, in nanoseconds
  Int64 slot_rows;  // rows of a slot
  Int64 row_bytes;  // from one of them to the next
  UInt64 progress;  // kFailed, the number of earlier calls << kPartBits, and how many parts of this call have read that
  Int64 used_rows[kBuffers], used_bytes[kBuffers];  // what earlier calls have written to each slot, and to its rows
  UInt64 finished;                                  // parts of this call whose rows have reached all ranks
  Int64 slots;                                      // where in a window the rows of slots are
  Int64 sums;                                       // and the sums of rows that other ranks have found
  CallStatus* status;
  UInt8* windows[kMaxRanks];   // of each rank, as this one sees it
  UInt8* from_own[kMaxRanks];  // the same from the own one on: which they are need not be known to ask for them
};
static_assert(sizeof(Workspace) <= 32 * sizeof(Int64));

JITNORM_INLINE Workspace& workspace_of(const Arguments& a) { return *reinterpret_cast<Workspace*>(a.workspace); }

// What a rank knows of another's call, in a word: whether it is the same call, with the same arguments.
JITNORM_INLINE UInt64 mark_of(UInt64 epoch, Int64 rows) {
  return (UInt64)((UInt32)kCallHash ^ (UInt32)rows * 0x9e3779b1u) << 32 | (UInt32)(epoch + 1);
}

// What a part of a call that works on so many of its parts adds to the progress, once it will not read it again.
JITNORM_INLINE UInt64 progress_of(bool is_first, Int64 own, Int64 all) {
  return is_first ? ((UInt64)1 << kPartBits) - (UInt64)(all - own) : (UInt64)own;
}

JITNORM_INLINE UInt64 calls_before(UInt64 progress) { return (progress & ~kFailed) >> kPartBits; }

enum class Arrival { kNotYet, kThere, kOther };

// A mark of an earlier call belongs to a rank that is not there yet; one of a later call, to a rank that skipped this.
JITNORM_INLINE Arrival arrival_of(UInt64 mark, UInt64 expected) {
  if (mark == expected) return Arrival::kThere;
  return (Int32)((UInt32)mark - (UInt32)expected) < 0 || mark == 0 ? Arrival::kNotYet : Arrival::kOther;
}

// A window begins with a mark from each rank for steps that it has finished for all rows of a call.
enum class Step { kReady, kDone };
constexpr Int64 kStepBytes = 2 * kMaxRanks * sizeof(UInt64);

JITNORM_INLINE UInt64* step_of(UInt8* window, Step step, Int64 rank) {
  return reinterpret_cast<UInt64*>(window) + (int)step * kMaxRanks + rank;
}

JITNORM_INLINE Slots slots_of(const Workspace& w) {
  Slots found{w.rank, w.slot_rows, w.row_bytes, w.slots};
  JITNORM_UNROLL
  for (int p = 0; p < kRanks; ++p) found.from_own[p] = w.from_own[p];
  return found;
}

// Then follow the marks of each buffer, rank and row, then the rows, each of which has a slot of its own there.
JITNORM_INLINE Int64 slot_number(const Slots& s, UInt64 epoch, Int64 rank, Int64 row) {
  return ((Int64)(epoch % kBuffers) * kRanks + rank) * s.rows + row;
}

JITNORM_INLINE Int64 mark_offset(Int64 slot) { return kStepBytes + slot * (Int64)sizeof(UInt64); }

JITNORM_INLINE Int64 row_bytes_offset(const Slots& s, Int64 slot) { return s.first + slot * s.row_bytes; }

// The bytes of a row: whole chunks, of which nothing is -0 once they have come.
constexpr int kSentBytes = kChunks * kChunkSize * (int)sizeof(Input);
// What a word of elements is that have not come: -0, as which none is sent.
constexpr UInt32 kNotYet = sizeof(Input) == 2 ? 0x80008000u : 0x80000000u;

// Adds one more rank's share to the sum, in rank order, starting from +0.
JITNORM_INLINE float added_share(float sum, float x) { return add_rn(sum, x); }

// Rounded to the input's type; +0 in place of -0, as everywhere in sums over ranks.
JITNORM_INLINE float sum_of_ranks(float sum) {
  if constexpr (!kRoundsSum) return sum;
  Input result;
  round_to(sum, result);
  return add_rn(to_float(result), 0.0f);
}

JITNORM_INLINE float with_residual(float sum, float residual) {
  const float s = sum_of_ranks(sum);
  if constexpr (!kHasResidual) return s;
#ifdef JITNORM_ROUNDS
  return rounded_sum(add_rn(s, residual));
#else
  return add_rn(s, residual);
#endif
}

// The rows of all ranks' sum.
JITNORM_INLINE Int64 all_rows(const Arguments& a) {
#ifdef JITNORM_SCATTERS
  return a.whole_rows;
#else
  return a.rows;
#endif
}

// The first of them whose tensors this rank has.
JITNORM_INLINE Int64 first_row(const Arguments& a) {
#ifdef JITNORM_SCATTERS
  return a.slots.rank * ((a.whole_rows + kRanks - 1) / kRanks);
#else
  return 0;
#endif
}

// How many consecutive rows a rank has; the last ranks may have fewer.
JITNORM_INLINE Int64 rows_of_rank(const Arguments& a) { return (all_rows(a) + kRanks - 1) / kRanks; }

// The distance between another rank's window and this rank's, in this rank's address space.
JITNORM_INLINE Int64 distance_of(const Workspace& w, Int64 rank) { return w.windows[rank] - w.windows[w.rank]; }

template <typename T>
JITNORM_INLINE T* at_distance(T* at, Int64 distance) {
  return reinterpret_cast<T*>((UInt64)at + distance);
}

// What is said of the places of a call's tensors: in the windows of all ranks, they are the same.
JITNORM_INLINE UInt64 mark_of_places(const Arguments& a, UInt64 epoch, const void* output) {
  const UInt8* window = workspace_of(a).windows[workspace_of(a).rank];
  Int64 places = reinterpret_cast<const UInt8*>(a.input) - window;
  for (int d = 0; d < kRowDims; ++d) places = places * 31 + a.input_strides[d];
  if (output != nullptr) places = places * 31 + (static_cast<const UInt8*>(output) - window);
  return mark_of(epoch, a.rows + places * 31);
}

#ifdef JITNORM_DIVIDES
// Where row 0 would be of a tensor that begins with row `first`.
template <typename T>
JITNORM_INLINE T* rows_before(const Arguments& a, T* at, Int64 first, const Int64* strides) {
  return at_distance(at, -row_offset(first, a.extents, strides) * (Int64)sizeof(T));
}

// The arguments of a call with the rows that this rank works on. Where rows are scattered, tensors have these alone;
// where they are gathered, those that are not shared do: what they would have before is skipped.
JITNORM_INLINE Arguments with_own_rows(Arguments a) {
  const Int64 rank = workspace_of(a).rank;
  if constexpr (!kSharesRows) {
    a.end = a.rows;
  } else if constexpr (!kSumsRanks) {
    a.first = rank * a.rows;
    a.end = a.first + a.rows;
    a.input = rows_before(a, a.input, a.first, a.input_strides);
    a.residual = rows_before(a, a.residual, a.first, a.residual_strides);
    a.residual_out = rows_before(a, a.residual_out, a.first, a.residual_out_strides);
    a.y_out = rows_before(a, a.y_out, a.first, a.y_out_strides);
    a.rows *= kRanks;
  } else {
    const Int64 rows = rows_of_rank(a), first = rank * rows;
    a.first = first < a.rows ? first : a.rows;
    a.end = first + rows < a.rows ? first + rows : a.rows;
  }
  return a;
}

// The arguments of a call whose outputs are in the window of another rank, where they lie as in the own one.
JITNORM_INLINE Arguments with_outputs_of(Arguments a, Int64 rank) {
  const Int64 distance = distance_of(workspace_of(a), rank);
  a.out = at_distance(a.out, distance);
  if constexpr (kSumsRanks) a.y_out = at_distance(a.y_out, distance);
  a.codes = at_distance(a.codes, distance);
  a.block_scale = at_distance(a.block_scale, distance);
  a.block_scale_unswizzled = at_distance(a.block_scale_unswizzled, distance);
  a.row_scale = at_distance(a.row_scale, distance);
  if constexpr (kSharesSum) a.residual_out = at_distance(a.residual_out, distance);
  return a;
}

JITNORM_INLINE UInt64 mark_of_divided(const Arguments& a, UInt64 epoch) {
  const void* output = kEncoding == Encoding::kValues ? (const void*)a.out : a.codes;
  if constexpr (!kSumsRanks) {  // inputs are anywhere
    const Workspace& w = workspace_of(a);
    return mark_of(epoch, a.rows + (static_cast<const UInt8*>(output) - w.windows[w.rank]) * 31);
  }
  if constexpr (kSharesRows) return mark_of_places(a, epoch, output);
  Arguments whole = a;  // outputs are anywhere
  whole.input = a.whole;
  for (int d = 0; d < kRowDims; ++d) whole.input_strides[d] = a.whole_strides[d];
  whole.rows = a.whole_rows;
  return mark_of_places(whole, epoch, nullptr);
}
#endif

#ifdef JITNORM_PASSES_SUMS
// The row at a place in the order in which a rank works on them: its own come earlier by so many than those of others,
// whose sums it waits for. So no rank waits for one that waits for it, if rows begin in that order; and there is
// something to wait for while others are on their way. From the number of rows on there is none.
JITNORM_INLINE Int64 row_at_place(const Arguments& a, Int64 place) {
  constexpr Int64 kMostLead = 128;
  const Int64 each = rows_of_rank(a), lead = each < kMostLead ? each : kMostLead, rank = workspace_of(a).rank;
  const Int64 turns = each - lead;
  Int64 number = place, turn = 0;  // of a rank's rows, and of the ranks from the own one on
  if (place >= lead) {
    const Int64 rest = place - lead, last = rest - turns * kRanks;
    number = last < 0 ? rest / kRanks : turns + last / (kRanks - 1);
    turn = last < 0 ? rest % kRanks : 1 + last % (kRanks - 1);
    if (turn == 0) number += lead;
  }
  const Int64 row = (rank + turn) % kRanks * each + number;
  return row < a.rows ? row : a.rows;
}

JITNORM_INLINE bool is_own_row(const Arguments& a, Int64 row) { return row / rows_of_rank(a) == workspace_of(a).rank; }

// Where the sum of a row arrives in the window of a rank that does not have the row, of ranks with `each` of them.
JITNORM_INLINE UInt8* sum_of_row(const Workspace& w, Int64 each, Int64 rank, Int64 row) {
  return w.windows[rank] + w.sums + (row < rank * each ? row : row - each) * w.row_bytes;
}
#endif
#endif
