// Reductions over a row. The sum is one tree of additions, fixed by the hidden size alone, so that every schedule
// gives the same bits; a maximum has the same bits in any order.
#pragma once

#include "../common/normalize.h"
#include "exchange.cuh"
#include "folds.cuh"
#include "side_by_side.cuh"
#include "source.cuh"
#include "turned_pairs.cuh"

template <typename Held>
JITNORM_INLINE float chunk_sum(const Held& chunk) {
  return sum_over_chunk([&](float sum, int i) { return add_element(sum, chunk, i); });
}

// What lies past the row counts as zero, also where the mean does not.
#ifdef JITNORM_SPLITS_CHUNKS
JITNORM_INLINE float chunk_sum_of_squares(const HeldChunk& chunk, float mean, int index) {
  return sum_over_chunk([&](float sum, int i) {
    if constexpr (!kCenters) return add_square(sum, chunk, i);
    const float d = is_there(index, i) ? centered(value_of(chunk, i), mean) : 0.0f;
    return fma_rn(d, d, sum);
  });
}
#else
JITNORM_INLINE float chunk_sum_of_squares(const HeldChunk& chunk, float mean, int index) {
  const float sum = sum_over_chunk([&](float sum, int i) {
    if constexpr (!kCenters) return add_square(sum, chunk, i);
    const bool is_past = kHasPartialChunk && index >= kWholeChunks && !is_in_row(index, i);
    const float d = is_past ? 0.0f : centered(value_of(chunk, i), mean);
    return fma_rn(d, d, sum);
  });
  return kCenters && index >= kChunks ? 0.0f : sum;  // checked once: per element, it would take an instruction each
}
#endif

// Whether threads meet in shared memory over a row: for its statistic or its largest magnitudes.
constexpr bool kMeetsOverRows = kNormalizes || kNeedsRowAmax || kEncoding == Encoding::kAmax;

// Over all lanes of a row. One instruction compares those of a warp as integers: the order of magnitudes is that of
// their bits, with NaN last.
JITNORM_INLINE float lanes_max(float amax) {
  if constexpr (kLanesPerRow < 32) return butterfly_max<kLanesPerRow>(amax);
  return float_of(__reduce_max_sync(kFullWarp, bits_of(amax)));
}

// Chunks of a group that a lane has, padded to a power of two: several if rows share a warp. Those missing count as +0,
// which changes no sum, because none is -0. Rows with more lanes than a warp have no sums.
constexpr int kGroupSlots = kLanesPerRow > 32    ? 1
                            : kGroups > 1        ? 32 / kLanesPerRow
                            : kChunksPerLane > 2 ? 4
                                                 : kChunksPerLane;
static_assert(!kNormalizes || kWarpsPerRow > 1 || kLiesSideBySide || kChunksPerLane <= kPaddedGroups * kGroupSlots,
              "a slot for each chunk of a lane");

// Several sums over a row or over a thread's rows, whose group sums arrive one after another: whole warps call add(),
// all threads of the rows call total(). A single warp keeps them in registers, because several rows of a block would
// collide in shared memory. With two sets of sums, a thread may begin the next ones while others still read the last;
// sums that repeat go on doing so from row to row.
template <int kCount, int kSets = 1, bool kRepeat = false>
struct Sums {
  // Chunks per lane whose sums share a butterfly.
  static constexpr int kBatch = !kHoldsRow ? 1 : kChunksPerLane % 4 == 0 ? 4 : kChunksPerLane % 2 == 0 ? 2 : 1;
  float batch[kCount][kBatch];
  float of_warp[kCount][kWarpsPerRow == 1 ? kPaddedGroups * kGroupSlots : 1] = {};
  int set = 0;
  UInt32 parity = 0;  // of the exchange, if sums repeat

  JITNORM_INLINE void add(int which, float chunk_sum, int slot, int warp, int lane) {
    if constexpr (kLiesSideBySide) {
      *left_sum<kSets * kCount>(of_set(which), lane + slot * kLanesPerRow) = chunk_sum;
      return;
    }
    if constexpr (kWarpsPerRow == 1) {
      of_warp[which][slot] = chunk_sum;
      return;
    }
#ifdef JITNORM_SPLITS_CHUNKS
    add_halves(which, chunk_sum, slot * kWarpsPerRow + warp, lane);
#else
    batch[which][slot % kBatch] = chunk_sum;
    if (slot % kBatch < kBatch - 1) return;
    constexpr int kOwners = kLanesPerRow / kBatch;
    const float sum = butterfly_sums<kLanesPerRow>(batch[which], lane);
    const int group = (slot - (kBatch - 1) + lane / kOwners) * kWarpsPerRow + warp;
    store(which, group, sum, lane % kOwners == 0, lane % kOwners);
#endif
  }

  // Calls meanwhile() once all threads have met.
  template <typename Visit>
  JITNORM_INLINE void total(float (&totals)[kCount], int lane, Visit meanwhile) {
    if constexpr (kLiesSideBySide) {
      __syncthreads();
      meanwhile();
      JITNORM_UNROLL
      for (int i = 0; i < kCount; ++i) totals[i] = fold_left_sums<kSets * kCount>(of_set(i), lane);
    } else if constexpr (kWarpsPerRow == 1) {
      meanwhile();
      JITNORM_UNROLL
      for (int i = 0; i < kCount; ++i) totals[i] = sum_of_slots(of_warp[i]);
    } else {
      meet(exchange(), parity);
      if constexpr (kInClusters && kRepeat) {
        if (threadIdx.x == 0) expect(exchange(), kCount * kBytesOfSum);
      }
      meanwhile();
      JITNORM_UNROLL
      for (int i = 0; i < kCount; ++i) totals[i] = sum_of_groups(group_sums(i), lane);
    }
  }

  JITNORM_INLINE void total(float (&totals)[kCount], int lane) {
    total(totals, lane, [] {});
  }

 private:
  JITNORM_INLINE Exchange exchange() const { return (Exchange)set; }
  JITNORM_INLINE int of_set(int which) const { return kSets == 1 ? which : set * kCount + which; }

  // Stores the sum of a group, which several lanes know: one of them or, in a cluster, one for each block.
  JITNORM_INLINE void store(int which, int group, float sum, bool is_first, int block) {
    float* slot = group_sums(which) + group;
    if constexpr (kInClusters) {
      if (block < kBlocksPerRow) send(exchange(), slot, sum, block);
    } else {
      if (is_first && group < kPaddedGroups) *slot = sum;
    }
  }

#ifdef JITNORM_SPLITS_CHUNKS
  // The rest of the butterfly, over every second lane.
  JITNORM_INLINE void add_halves(int which, float sum, int group, int lane) {
    JITNORM_UNROLL
    for (int mask = 16; mask > 1; mask /= 2) sum = add_rn(sum, __shfl_xor_sync(kFullWarp, sum, mask));
    store(which, group, sum, lane == 1, lane % 2 == 1 ? lane / 2 : kBlocksPerRow);
  }
#endif

  // Folds first what a lane has of each group, whose chunks are kLanesPerRow apart.
  JITNORM_INLINE static float sum_of_slots(const float (&slots)[kPaddedGroups * kGroupSlots]) {
    float groups[kPaddedGroups];
    JITNORM_UNROLL
    for (int g = 0; g < kPaddedGroups; ++g) {
      float of_group[kGroupSlots];
      JITNORM_UNROLL
      for (int i = 0; i < kGroupSlots; ++i) of_group[i] = slots[g * kGroupSlots + i];
#ifdef JITNORM_HOLDS_HALVES
      if constexpr (!kPairsLieInOrder) sort_halves(of_group);
#endif
      groups[g] = g < kGroups ? butterfly_sum<kLanesPerRow>(fold_sum(of_group)) : 0.0f;
    }
    return fold_sum(groups);
  }

  JITNORM_INLINE float* group_sums(int which) const {
    constexpr int kSlots = kInClusters && kSentSums > kPaddedGroups ? kSentSums : kPaddedGroups;
    __shared__ alignas(16) float sums[kSharingRows][kSets * kCount][kSlots];
    return sums[kSharingRows == 1 ? 0 : row_of_block()][of_set(which)];
  }

  // Groups past the last one count as zero. Not with ?:, because NVRTC 13.0 turns it into branches and copies the
  // exchanges after it into both: the gradients of 12288 columns took 1.6 times as long.
  JITNORM_INLINE static float group_sum(const float* sums, int group) {
    constexpr int kGroups = kChunksPerLane * kWarpsPerRow;
    float sum = sums[group];
    if constexpr (kGroups < kPaddedGroups) {
      asm("{\n.reg .pred is_there;\nsetp.lt.s32 is_there, %1, %2;\nselp.f32 %0, %0, 0f00000000, is_there;\n}"
          : "+f"(sum)
          : "r"(group), "n"(kGroups));
    }
    return sum;
  }

  JITNORM_INLINE static float sum_of_groups(const float* sums, int lane) {
    // Every thread adds a few of them itself: each shuffle would take as long as five additions.
    constexpr int kLanes = kPaddedGroups <= 16 ? 1 : 32;
    constexpr int kFolds = kPaddedGroups / kLanes;
    float partial[kFolds];
    JITNORM_UNROLL
    for (int i = 0; i < kFolds; ++i) partial[i] = group_sum(sums, i * kLanes + lane % kLanes);
    return butterfly_sum<kLanes>(fold_sum(partial));
  }
};

// The second sums of a row, or those of the next row, need not wait until nobody reads the first.
typedef Sums<kRowsAtOnce, kSumsTwice || kAlternatesSums ? 2 : 1, kRepeatsExchanges> RowSums;

// The sums of rows before which the block has had others so often.
JITNORM_INLINE RowSums sums_of_turn(UInt32 turn) {
  RowSums sums;
  sums.set = kAlternatesSums ? turn % 2 : 0;
  sums.parity = kRepeatsExchanges ? turn / (kAlternatesSums ? 2 : 1) % 2 : 0;
  return sums;
}

// Reduces the largest magnitudes that each thread has seen to those of the rows.
JITNORM_INLINE void row_max(float (&amax)[kRowsAtOnce], UInt32 turn, int warp, int lane) {
  if constexpr (kLiesSideBySide) {
    side_by_side_max(amax, lane);
    return;
  }
  JITNORM_UNROLL
  for (int r = 0; r < kRowsAtOnce; ++r) amax[r] = lanes_max(amax[r]);
  if constexpr (kWarpsPerRow > 1) {
    __shared__ alignas(16) float of_rows[kSharingRows][kRowsAtOnce][kWarpsPerRow];
    auto& of_warps = of_rows[kSharingRows == 1 ? 0 : row_of_block()];
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      share(Exchange::kAmaxes, &of_warps[r][warp], amax[r], lane);
    }
    meet(Exchange::kAmaxes, kRepeatsExchanges ? turn % 2 : 0);
    if (kRepeatsExchanges && threadIdx.x == 0) expect(Exchange::kAmaxes, bytes_of(Exchange::kAmaxes));
    JITNORM_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      amax[r] = 0.0f;
      JITNORM_UNROLL
      for (int w = 0; w < kWarpsPerRow; ++w) amax[r] = max_magnitude(amax[r], of_warps[r][w]);
    }
  }
}
