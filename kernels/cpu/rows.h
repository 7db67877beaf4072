// The schedule of row-wise ops: rows one after another, each read once and kept as floats in a buffer that stays in the
// cache, together with the parameters.
#pragma once

#include "../common/experts.h"
#include "../common/finish.h"
#include "all_reduce.h"
#include "branch.h"
#include "combine.h"
#include "encode.h"
#include "mapping.h"
#include "pages.h"
#include "rotation.h"
#include "row_reduce.h"
#include "sandwich.h"

struct RowBuffers {
  Tile h[kRowTiles];
  Tile weight[kNormalizes ? kRowTiles : 1], bias[kHasBias ? kRowTiles : 1];
#ifdef JITNORM_GATES
  const Input* gate;  // the row of gates
#endif
#ifdef JITNORM_MODULATES
  const Arguments* arguments;
  Int64 row;  // whose norm is modulated
#endif
#ifdef JITNORM_WEIGHTS
  Tile other_weights[kWeights - 1][kRowTiles];
#endif
};

JITNORM_INLINE RowBuffers& row_buffers() {
  static thread_local RowBuffers buffers;
  RowBuffers* address = &buffers;
  // Otherwise GCC asks for the address of a thread's own array again in every loop iteration, which takes as long as
  // the rest of a plain norm.
  asm("" : "+r"(address));
  return *address;
}

JITNORM_INLINE void load_parameters(const Arguments& a, RowBuffers& buffers) {
  for (int t = 0; t < kRowTiles; ++t) {
#ifdef JITNORM_TWO_SIZES
    load_tile(a.weight, a.size, t, buffers.weight[t]);
#else
    if constexpr (kNormalizes) load_tile(a.weight, kHiddenSize, t, buffers.weight[t]);
#endif
    if constexpr (kHasBias) load_tile(a.bias, kHiddenSize, t, buffers.bias[t]);
#ifdef JITNORM_WEIGHTS
    for (int n = 1; n < kWeights; ++n) {
      load_tile(a.weight + n * kHiddenSize, kHiddenSize, t, buffers.other_weights[n - 1][t]);
    }
#endif
  }
}

#ifdef JITNORM_FINISHES
JITNORM_INLINE void finish_tile(int t, const RowBuffers& buffers, Tile& y) {
#ifdef JITNORM_GATES
  Tile gates;
  load_tile(buffers.gate, kHiddenSize, t, gates);
  for_each_value(
      [&](int e, int k) { y.at[e][k] = rounded_finish(mul_rn(y.at[e][k], activated<kActivation>(gates.at[e][k]))); });
#else
#ifdef JITNORM_MODULATES
  modulate_tile(*buffers.arguments, buffers.row, t, y);
#else
  for_each_value([&](int e, int k) { y.at[e][k] = rounded_finish(activated<kActivation>(y.at[e][k])); });
#endif
#endif
}
#endif

JITNORM_INLINE void normalize_tile(int t, const RowStatistic& statistic, const RowBuffers& buffers, Tile& y) {
  for_each_value([&](int e, int k) {
    const float bias = kHasBias ? buffers.bias[t].at[e][k] : 0.0f;
    y.at[e][k] = normalize(buffers.h[t].at[e][k], statistic, factor_of(buffers.weight[t].at[e][k]), bias);
  });
#ifdef JITNORM_FINISHES
  finish_tile(t, buffers, y);
#endif
  clear_padding(t, y);
}

#ifdef JITNORM_WEIGHTS
// Stores the norms of a tile with all weights but the first.
JITNORM_INLINE void store_other_norms(const Arguments& a, Int64 row, int t, const RowStatistic& statistic,
                                      const RowBuffers& buffers) {
  for (int n = 1; n < kWeights; ++n) {
    Tile y;
    for_each_value([&](int e, int k) {
      const float factor = factor_of(buffers.other_weights[n - 1][t].at[e][k]);
      y.at[e][k] = normalize(buffers.h[t].at[e][k], statistic, factor, 0.0f);
    });
    store_tile(y, t, row_by_weight(a, n, row));
  }
}
#endif

// The statistic of a row in the cache.
JITNORM_INLINE RowStatistic statistic_of(const Arguments& a, Int64 row, const Tile* h) {
  RowStatistic statistic{0.0f, 1.0f};
  if constexpr (kCenters) statistic.mean = mean_of(row_sum(h));
#ifdef JITNORM_TWO_SIZES
  statistic.rstd = reciprocal_rms_of(row_sum_of_squares(h, 0.0f), a.size, a.eps);
#else
  if constexpr (kNormalizes) statistic.rstd = reciprocal_rms(row_sum_of_squares(h, statistic.mean), a.eps);
#endif
  if constexpr (kKeepsMean) a.mean[row] = with_positive_nan(statistic.mean);
  if constexpr (kKeepsRstd) a.rstd[row] = with_positive_nan(statistic.rstd);
  return statistic;
}

#ifdef JITNORM_ROTATES
// Elements that are rotated together may be in two tiles.
constexpr bool kNormalizesFirst = kNormalizes;
#else
// If the amax of the row, or of a block that spans tiles, is needed first, all values are computed first.
constexpr bool kNormalizesFirst = kNormalizes && (kNeedsRowAmax || kBlockTiles > 1);
#endif

JITNORM_INLINE void process_row(const Arguments& a, Int64 row, RowBuffers& buffers) {
#ifdef JITNORM_GATHERS
  const Int64 from = input_row(a, row);
  if (from < 0) return;
  load_row<kCombine>(a, from, buffers.h);
#else
  load_row<kCombine>(a, row, buffers.h);
#endif
#ifdef JITNORM_GATES
  buffers.gate = a.gate + row_offset(row, a.extents, a.gate_strides);
#endif
#ifdef JITNORM_MODULATES
  buffers.arguments = &a;
  buffers.row = row;
#endif
  const RowStatistic statistic = statistic_of(a, row, buffers.h);
  if constexpr (kNormalizesFirst) {
    for (int t = 0; t < kRowTiles; ++t) normalize_tile(t, statistic, buffers, buffers.h[t]);
  }
#ifdef JITNORM_ROTATES
  turn_row(a, row, buffers.h);
#endif
  const RowEncoder encoder = RowEncoder::begin_row(a, row, kNeedsRowAmax ? row_max(buffers.h) : 0.0f);
  const Input* next = a.input + row_offset(row_after(a, row), a.extents, a.input_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    prefetch_tile(next, t);
    Tile normalized;
    if constexpr (kNormalizes && !kNormalizesFirst) normalize_tile(t, statistic, buffers, normalized);
    const Tile& y = kNormalizes && !kNormalizesFirst ? normalized : buffers.h[t];
    if constexpr (kKeepsNorm) store_tile(y, t, a.y_out + row_offset(row, a.extents, a.y_out_strides));
    encoder.encode_tile(a, row, t, y);
#ifdef JITNORM_WEIGHTS
    store_other_norms(a, row, t, statistic, buffers);
#endif
  }
}

// Turns that a matrix has: its rows', then that of what pads their scales.
JITNORM_INLINE Int64 turns_of(Int64 rows) {
#ifdef JITNORM_PADS
  return rows + (rows % kPaddedRowMultiple == 0 ? 0 : kPaddingBlocks);
#else
  return rows;
#endif
}

// Takes the turns from `first` to `last`.
JITNORM_INLINE void process_rows(const Arguments& a, Int64 first, Int64 last) {
  RowBuffers& buffers = row_buffers();
  load_parameters(a, buffers);
  for (Int64 row = first; row < last; ++row) {
    if (is_processed(a, row)) process_row(a, row, buffers);
  }
#ifdef JITNORM_PADS
  if (first <= a.rows && a.rows < last) pad_scales(a, 0, 1);
#endif
}

// arguments_of() gives the Arguments of a row set: of the only one, of the first or the second, or of a matrix.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  if constexpr (kRowSets == RowSets::kPair) {
    const Int64 border = turns_of(arguments_of(false).rows);
    process_rows(arguments_of(false), first, last < border ? last : border);
    process_rows(arguments_of(true), first < border ? 0 : first - border, last - border);
#ifdef JITNORM_PAGES
    const Int64 keys = border + turns_of(arguments_of(true).rows);  // and what is before them
    insert_values(arguments_of(true), first < keys ? 0 : first - keys, last - keys);
#endif
  } else if constexpr (kRowSets == RowSets::kMatrices) {
    const Int64 rows = turns_of(arguments_of(0).rows);
    while (first < last) {
      const Int64 matrix = first / rows, begin = matrix * rows, end = begin + rows;
      process_rows(arguments_of(matrix), first - begin, (last < end ? last : end) - begin);
      first = end;
    }
  } else {
    process_rows(arguments_of(), first, last);
  }
}

#ifdef JITNORM_REDUCES
#ifdef JITNORM_DIVIDES
// Rows that ranks divide: each sums and encodes its own, for all ranks or only itself, once all ranks have arrived; the
// last part of a call to finish waits until the other ranks have done the same.
template <typename ArgumentsOf>
JITNORM_INLINE void process_divided_rows(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  const Arguments a = with_own_rows(arguments_of());
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(w), mark = mark_of_divided(a, epoch);
  const Int64 all = rows_of_each(a);
  const bool is_good = !has_failed(w);
  if (first == 0 && is_good) announce(w, Step::kReady, mark);
  clear_last(a, first, last, all);
  if (is_good && await_others(w, Step::kReady, mark, epoch)) {
    for (int p = kSharesRows ? 1 : kRanks; p <= kRanks; ++p) {  // itself last, because sums may overwrite the residual
      process_rows(with_outputs_of(a, (w.rank + p) % kRanks), a.first + first, a.first + last);
    }
  }
  if (first == 0) pad_scales(a, 0, 1);
  const Int64 finished = (Int64)__atomic_add_fetch(&w.finished, (UInt64)(last - first), __ATOMIC_ACQ_REL);
  if (finished == all) {
    store_shared(&w.finished, (UInt64)0);
    if (!has_failed(w)) {
      announce(w, Step::kDone, mark);
      await_others(w, Step::kDone, mark, epoch);
    }
  }
  end_part(w, epoch, 0, first, last, all);
}
#else
#ifdef JITNORM_PASSES_SUMS
// Rows that ranks divide to sum them, once all have arrived; each processes all of them.
template <typename ArgumentsOf>
JITNORM_INLINE void process_passed_rows(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  const Arguments a = arguments_of();
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(w), mark = mark_of_places(a, epoch, nullptr);
  const Int64 each = rows_of_rank(a), all = each * kRanks;
  const bool is_good = !has_failed(w);
  if (first == 0 && is_good) announce(w, Step::kReady, mark);
  clear_last(a, first, last, all);
  for (Int64 place = first; place < last && is_good; ++place) {
    const Int64 row = row_at_place(a, place);
    if (row == a.rows) continue;
    if (is_own_row(a, row) && !await_others(w, Step::kReady, mark, epoch)) break;
    process_rows(a, row, row + 1);
  }
  if (first == 0) pad_scales(a, 0, 1);
  end_part(w, epoch, 0, first, last, all);
}
#else
// Rows whose inputs are summed over ranks, each of which receives all inputs.
template <typename ArgumentsOf>
JITNORM_INLINE void process_reduced_rows(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  const Arguments a = arguments_of();
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(w);
  const Int64 all = turns_of(a.rows);
  clear_last(a, first, last, all);
  process_rows(a, first, last);
  end_part(w, epoch, a.rows, first, last, all);
}

#ifdef JITNORM_SCATTERS
// Rows that ranks divide and send to each other: each sums and encodes its own, for itself.
template <typename ArgumentsOf>
JITNORM_INLINE void process_scattered_rows(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  Arguments a = arguments_of();
  Workspace& w = workspace_of(a);
  a.slots = slots_of(w);
  const UInt64 epoch = epoch_of(w);
  const Int64 all = padded_rows(all_rows(a)), first_own = first_row(a);
  clear_last(a, first, last, all);
  for (Int64 row = first; row < last && row < all_rows(a); ++row) {
    const Int64 own = row - first_own;
    if (own >= 0 && own < a.rows) {
      process_rows(a, own, own + 1);
    } else {
      pass_row_on(a, row);
    }
  }
  if (first == 0) pad_scales(a, 0, 1);
  end_part(w, epoch, all_rows(a), first, last, all);
}
#endif
#endif
#endif
#endif

#ifdef JITNORM_TURNS
// Rows cycle through kWeightRows parts of the weight; arguments_of() gives the Arguments of the rows for a part.
template <typename ArgumentsOf>
JITNORM_INLINE void process_rows_in_turn(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  for (Int64 row = first; row < last; ++row) process_rows(arguments_of(row % kWeightRows), row, row + 1);
}
#endif

#ifdef JITNORM_EXPERTS
// arguments_of() gives the Arguments of an expert. After the rows of `all`, each expert's padding has a turn.
template <typename ArgumentsOf>
JITNORM_INLINE void process_experts(ArgumentsOf arguments_of, const ExpertOffsets& offsets, const Arguments& all,
                                    Int64 first, Int64 last) {
  const Int64 rows = all.rows;
  for (Int64 expert = 0; expert < arguments_of(0).matrices; ++expert) {
    const Arguments a = arguments_of(expert);
    const Int64 begin = rows_between(offsets.rows[expert], offsets.rows[expert + 1], as_bound(rows)).first;
    process_rows(a, first > begin ? first - begin : 0, last - begin < a.rows ? last - begin : a.rows);
    if (kHasSwizzledScales && first <= rows + expert && rows + expert < last) pad_scales(a, 0, 1);
  }
}
#endif
