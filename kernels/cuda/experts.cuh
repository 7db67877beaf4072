// Rows of experts: which expert a row belongs to, where its scales are, and what pads these.
#pragma once

#include "../common/experts.h"
#include "rows.cuh"

#ifdef JITNORM_EXPERTS
// So many experts per lane that 32 lanes have all of them. A lane looks at its experts at once if it has few of them,
// first at the last of them if it has more.
constexpr int kExpertsPerLane = (kExperts + 31) / 32, kExpertsAtOnce = kExpertsPerLane <= 2 ? kExpertsPerLane : 1;
static_assert(kExpertsPerLane <= 32, "a search has two steps");

// Loads a number even if it is not used: its neighbours then are in the L1 cache.
JITNORM_INLINE Int32 loaded(const Int32* at) {
  Int32 number;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(number) : "l"(__cvta_generic_to_global(at)));
  return number;
}

// An expert: where its rows begin and end, and where its scales begin.
struct Expert {
  int number;
  Int32 begin, end, scales;

  JITNORM_INLINE static Expert of(const ExpertOffsets& offsets, int number) {
    const Int32 scales = kHasSwizzledScales ? loaded(offsets.scales + number) : 0;
    return {number, offsets.rows[number], offsets.rows[number + 1], scales};
  }

  JITNORM_INLINE bool has(Int32 row) const { return begin <= row && row < end; }
};

// The experts that a lane looks at: the last ones of `per_lane` that it has, from `first` on.
struct SeenExperts {
  Expert experts[kExpertsAtOnce];

  JITNORM_INLINE static SeenExperts of(const ExpertOffsets& offsets, int first, int per_lane) {
    const int after = first + ((int)threadIdx.x % 32 + 1) * per_lane;
    SeenExperts seen;
    JITNORM_UNROLL
    for (int i = 0; i < kExpertsAtOnce; ++i) {
      const int number = after - kExpertsAtOnce + i;
      seen.experts[i] = Expert::of(offsets, number < kExperts ? number : kExperts - 1);
    }
    return seen;
  }

  // The first that ends after a row, or the last.
  JITNORM_INLINE Expert at(Int32 row) const { return experts[0].end > row ? experts[0] : experts[kExpertsAtOnce - 1]; }
};

// The first lane whose expert ends after a row, or the last one.
JITNORM_INLINE int lane_of_row(const Expert& own, Int32 row) {
  return __ffs((int)(__ballot_sync(kFullWarp, own.end > row) | 0x80000000u)) - 1;
}

// Finds the expert that has a row, if one has, by the first row of its warp and by what its lanes have seen of all.
JITNORM_INLINE Expert find_expert(const ExpertOffsets& offsets, const SeenExperts& seen, Int32 row) {
  constexpr bool kWarpHasOneRow = kThreadsPerRow % 32 == 0;
  const Int32 first_row = kWarpHasOneRow ? row : __shfl_sync(kFullWarp, row, 0);
  Expert own = seen.at(first_row);
  int lane = lane_of_row(own, first_row);
  if constexpr (kExpertsPerLane > kExpertsAtOnce) {
    own = SeenExperts::of(offsets, lane * kExpertsPerLane, 1).experts[0];
    lane = lane_of_row(own, first_row);
  }
  Expert found{__shfl_sync(kFullWarp, own.number, lane), __shfl_sync(kFullWarp, own.begin, lane),
               __shfl_sync(kFullWarp, own.end, lane), __shfl_sync(kFullWarp, own.scales, lane)};
  while (!kWarpHasOneRow && found.end <= row && found.number < kExperts - 1) {
    found = Expert::of(offsets, found.number + 1);
  }
  return found;
}

// What a block works on: rows, or the padding of scales, with a number among those of its kind.
struct Work {
  bool is_padding;
  UInt32 number;

  // Padding has each 2^n-th block, and so comes about when the rows of its expert do if experts have about as many:
  // while the sectors of scales that it shares with them are in the L2 cache. NVFP4 of 8192 x 7168 for 256 experts
  // takes 0.77 of what it takes with all padding first.
  JITNORM_INLINE static Work of_block() {
    const UInt32 block = row_block();
    if constexpr (kPaddingBlocks == 0) return {false, block};
    const int n = 31 - __clz((int)(row_blocks() / kPaddingBlocks));
    const UInt32 paddings = block >> n;
    if (paddings >= kPaddingBlocks) return {false, block - kPaddingBlocks};
    const bool is_padding = block == paddings << n;
    return {is_padding, is_padding ? paddings : block - paddings - 1};
  }
};

// Zeroes a share of what pads the scales of an expert.
JITNORM_INLINE void pad_expert(Arguments a, const ExpertOffsets& offsets, int share) {
  if (share >= kExperts * kPaddingShares) return;
  const Expert expert = Expert::of(offsets, share / kPaddingShares);
  launch_dependents();
  const Int32 most = as_bound(a.rows);
  const ExpertRows own = rows_between(expert.begin, expert.end, most);
  a.block_scale += (Int64)first_tile(expert.scales, own.count, most) * (kPaddedRowMultiple * kPaddedScaleColumns);
  a.rows = own.count;
  pad_scales(a, share % kPaddingShares * kThreads + threadIdx.x, kPaddingShares * kThreads);
}

// arguments_of() gives the Arguments of all rows, with an expert's own scales. The offsets are requested before a row,
// which takes longer.
template <typename ArgumentsOf>
JITNORM_INLINE void process_experts(ArgumentsOf arguments_of, const ExpertOffsets& offsets, const Arguments& all) {
  static_assert(kRowsAtOnce == 1 && !kNormalizes, "rows are quantized, each by the scale of its expert");
  const Work work = Work::of_block();
  if (work.is_padding) {
    wait_for_inputs();
    pad_expert(all, offsets, (int)(work.number * kBlocksPerRow + blockIdx.x % kBlocksPerRow));
    return;
  }
  const int thread = thread_of_row(), lane = threadIdx.x % kLanesPerRow, warp = thread / kLanesPerRow;
  const Int64 first = (Int64)work.number * kRowsPerBlock;
  const Int64 number = first + (kRowsPerBlock == 1 ? 0 : threadIdx.x / kThreadsPerRow);
  if (first >= all.rows) return;
  Rows of;
  Row& row = of.rows[0];
  if constexpr (kPlacesEarly) {
    row = locate_row(all, number, thread);
    compute_places(row.source, row.index(0));
  }
  expect_exchanges();
  await_blocks();
  wait_for_inputs();
  const SeenExperts seen = SeenExperts::of(offsets, 0, kExpertsPerLane);
  __syncwarp();  // or the compiler would request the row first
  begin_loading(all, of, number, thread);
  const Int32 sought = as_bound(number);
  const Expert expert = find_expert(offsets, seen, sought);
  const bool has_expert = number < all.rows && expert.has(sought);
  Arguments a = arguments_of(has_expert ? expert.number : 0);
  if (kHasSwizzledScales) {
    const Int32 most = as_bound(all.rows);
    const ExpertRows own = rows_between(expert.begin, expert.end, most);
    a.rows_to_scales = first_tile(expert.scales, own.count, most) * kPaddedRowMultiple - own.first;
  }
  row.is_processed &= has_expert;
  if (!has_expert) row.first_chunk = kPastRow;
  const RowEncoder::CallScale call = RowEncoder::prepare(a, RowEncoder::given(a));
  signal_after(Phase::kRequested);
  find_statistics(a, of, warp, lane, [] {});
  finish_rows(a, of, call, thread, warp, lane);
  signal_after(Phase::kStored);
}
#endif
