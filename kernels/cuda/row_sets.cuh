// Which block works on which rows of which row set.
#pragma once

#include "experts.cuh"
#include "pages.cuh"

// arguments_of() gives the Arguments of a row set: of the only one, of the first or the second, or of a matrix.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  if constexpr (kRowSets == RowSets::kPair) {  // the first blocks have one, the others the other, none both
    const UInt32 first_blocks = (UInt32)blocks_of(arguments_of(false).rows);
#ifdef JITNORM_PAGES
    const UInt32 blocks = first_blocks + (UInt32)blocks_of(arguments_of(true).rows);
    if (row_block() >= blocks) {  // the last ones have values
      insert_values(arguments_of(true), row_block() - blocks);
      return;
    }
#endif
    const bool second = row_block() >= first_blocks;
    process_rows(arguments_of(second), row_block() - (second ? first_blocks : 0));
  } else if constexpr (kRowSets == RowSets::kMatrices) {  // a block has rows of one matrix
    const UInt32 blocks = (UInt32)blocks_of_matrix(arguments_of(0).rows);
    const UInt32 matrix = row_block() / blocks;
    process_rows(arguments_of(matrix), row_block() - matrix * blocks);
  } else {
    process_rows(arguments_of(), row_block());
  }
}

#ifdef JITNORM_REDUCES
// Rows whose inputs are summed over ranks, each of which receives all inputs.
template <typename ArgumentsOf>
JITNORM_INLINE void process_reduced_rows(ArgumentsOf arguments_of) {
  const Arguments a = begun(arguments_of);
  const Int64 blocks = blocks_of(a.rows);  // those behind have padding
  UsedSlots used = {};
  if (row_block() < blocks) used = UsedSlots::of(a);
  process_rows(a, row_block(), [&] { clear_last(a, used, blocks); });
  end_block(a, a.rows);
}

#ifdef JITNORM_SCATTERS
// Rows that ranks divide and send to each other: each sums and encodes its own, for itself.
template <typename ArgumentsOf>
JITNORM_INLINE void process_scattered_rows(ArgumentsOf arguments_of) {
  const Arguments a = begun(arguments_of);
  const UsedSlots used = UsedSlots::of(a);
  const auto meanwhile = [&] {
    clear_last(a, used, row_blocks());
    pad_scales(a, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads);
  };
  const Int64 row = row_block(), own = row - first_row(a);
  if (own >= 0 && own < a.rows) {
    process_rows(a, own, meanwhile);
  } else if (row < all_rows(a)) {
    pass_row_on(a, row, meanwhile);
  } else {
    meanwhile();
    __syncthreads();  // all threads know the call before its end
  }
  end_block(a, all_rows(a));
}
#endif

// Whether all blocks that share a row say so: one that stopped would leave the others waiting for what it sends.
JITNORM_INLINE bool all_blocks(bool is_good) {
  if constexpr (!kExchangesInCluster) return is_good;
  __shared__ UInt32 said;
  if (threadIdx.x == 0) said = is_good;
  shared_memory_barrier();
  JITNORM_UNROLL
  for (int block = 0; block < kBlocksPerRow; ++block) {
    UInt32 of_block;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(of_block) : "r"(address_in_block(&said, block)));
    is_good &= of_block != 0;
  }
  end_sharing();
  return is_good;
}

#ifdef JITNORM_DIVIDES
// Rows that ranks divide: each sums and encodes its own, for all ranks or only itself, once all have arrived.
template <typename ArgumentsOf>
JITNORM_INLINE void process_divided_rows(ArgumentsOf arguments_of) {
  const Arguments a = with_own_rows(begun(arguments_of));
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(a), mark = mark_of_divided(a, epoch);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !had_failed(a)) {
    // Without a sum, only reads come before: of what others will write.
    if constexpr (kSumsRanks) {
      announce(w, Step::kReady, mark);
    } else {
      tell(w, Step::kReady, mark);
    }
  }
  clear_last(a, UsedSlots::of(a), row_blocks());
  pad_scales(a, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads);
  if (!kSumsRanks || all_blocks(await_ready(a))) process_rows(a, row_block());
  if (!kSumsRanks && gridDim.x <= a.slots.rows) {
    finish_block(a, mark);
  } else {
    finish_together(w, mark, epoch);
  }
  end_block(a, 0);
}
#endif

#ifdef JITNORM_PASSES_SUMS
// Rows that ranks divide to sum them, once all have arrived; each processes all of them, as their sums arrive.
template <typename ArgumentsOf>
JITNORM_INLINE void process_passed_rows(ArgumentsOf arguments_of) {
  const Arguments a = begun(arguments_of);
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(a), mark = mark_of_places(a, epoch, nullptr);
  if (blockIdx.x == 0 && threadIdx.x == 0 && !had_failed(a)) announce(w, Step::kReady, mark);
  clear_last(a, UsedSlots::of(a), row_blocks());
  pad_scales(a, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads);
  const Int64 row = row_at_place(a, row_block());
  if (row < a.rows && (!is_own_row(a, row) || all_blocks(await_others(w, Step::kReady, mark, epoch)))) {
    process_rows(a, row);
  } else {
    __syncthreads();  // all threads know the call before its end
  }
  end_block(a, 0);
}
#endif
#endif

#ifdef JITNORM_TURNS
// Rows cycle through kWeightRows parts of the weight; arguments_of() gives the Arguments of the rows for a part.
template <typename ArgumentsOf>
JITNORM_INLINE void process_rows_in_turn(ArgumentsOf arguments_of) {
  const UInt32 first = row_block() * kRowsPerBlock;
  const UInt32 row = first + (kRowsPerBlock == 1 ? 0 : threadIdx.x / kThreadsPerRow);
  process_rows(arguments_of(row % kWeightRows), row_block());
}
#endif

#ifdef JITNORM_MAPS_STREAMS
#ifdef JITNORM_SUMS_FIRST
// Blocks process one row after another. Then each thread computes the factors for after the layer of one of these: a
// thread that computed them between two rows would keep all others of its block waiting.
template <typename ArgumentsOf>
JITNORM_INLINE void process_mapped_rows(ArgumentsOf arguments_of) {
  const Arguments a = arguments_of();
  for (Int64 block = row_block(); block * kRowsOfBlock < a.rows; block += row_blocks()) {
    process_rows(a, block);
    end_exchanges();
  }
  for (int n = thread_of_cluster();; n += kThreads * kBlocksPerRow) {
    const Int64 first = (row_block() + (Int64)(n / kRowsOfBlock) * row_blocks()) * kRowsOfBlock;
    if (first >= a.rows) return;
    const Int64 row = first + n % kRowsOfBlock;
    if (row < a.rows) write_mixes(a, row, MixLogits::of(a, row), left_rstd(a, row));
  }
}
#else
// What a block works on: rows, or factors for after the layer, with a number among the blocks of its kind.
struct MappedWork {
  bool is_factors;
  UInt32 number;

  // Of the first blocks, each second has factors, because few rows would wait for their chain of steps, or each fifth,
  // so that many rows are loaded meanwhile: each fifth, 3510 x 384 took 1.11 of the time, each second, 188878 x 384
  // 1.04. A block of factors has no fewer rows than the blocks that go between two of them.
  JITNORM_INLINE static MappedWork of_block(Int64 rows) {
    constexpr UInt32 kManyBlocks = 512, kBetween = kFactorRows / kRowsOfBlock;
    const UInt32 factor_blocks = (UInt32)((rows + kFactorRows - 1) / kFactorRows);
    return factor_blocks > kManyBlocks ? at<(kBetween < 4 ? kBetween : 4)>(row_block(), factor_blocks)
                                       : at<(kBetween < 1 ? kBetween : 1)>(row_block(), factor_blocks);
  }

 private:
  // With so many blocks of rows between two of factors.
  template <UInt32 kBetween>
  JITNORM_INLINE static MappedWork at(UInt32 block, UInt32 factor_blocks) {
    const UInt32 before = block / (1 + kBetween);
    if (before >= factor_blocks) return {false, block - factor_blocks};
    const bool is_factors = block % (1 + kBetween) == 0;
    return {is_factors, is_factors ? before : block - before - 1};
  }
};

// Blocks have rows, or compute the factors for after the layer, one row per thread.
template <typename ArgumentsOf>
JITNORM_INLINE void process_mapped_rows(ArgumentsOf arguments_of) {
  constexpr UInt32 kFactorThreads = kFactorRows / kBlocksPerRow;
  const Arguments a = arguments_of();
  const MappedWork work = MappedWork::of_block(a.rows);
  if (!work.is_factors) {
    process_rows(a, work.number);
    return;
  }
  wait_for_inputs();
  launch_dependents();
  const Int64 row = (Int64)work.number * kFactorRows + blockIdx.x % kBlocksPerRow * kFactorThreads + threadIdx.x;
  if (threadIdx.x >= kFactorThreads || row >= a.rows) return;
  const MixLogits logits = MixLogits::of(a, row);
  write_mixes(a, row, logits, given_reciprocal_rms(a, row));
}
#endif
#endif

// A block of the rows of a matrix, if there is one.
struct FoundBlock {
  UInt32 matrix, number;
  bool is_there;
};

// Finds the matrix that a block belongs to, for blocks in increasing order: each lane knows how many blocks one of the
// matrices has.
template <typename ArgumentsOf>
struct BlockFinder {
  ArgumentsOf arguments_of;
  UInt32 matrices;
  UInt32 first;  // the matrix of lane 0
  UInt32 own;    // blocks of this lane's
  UInt32 sum;    // of these and of all matrices before

  JITNORM_INLINE void look_at(UInt32 matrix, UInt32 before) {
    const UInt32 lane = threadIdx.x % 32, each = matrix + lane;
    first = matrix;
    own = each < matrices ? (UInt32)blocks_of(counted_rows(arguments_of(each))) : 0;
    sum = own;
    for (int distance = 1; distance < 32; distance *= 2) {
      const UInt32 others = __shfl_up_sync(kFullWarp, sum, distance);
      if (lane >= distance) sum += others;
    }
    sum += before;
  }

  JITNORM_INLINE FoundBlock find(UInt32 block) {
    while (true) {
      const UInt32 reaching = __ballot_sync(kFullWarp, sum > block);
      if (reaching != 0) {
        const int lane = __ffs((int)reaching) - 1;
        const UInt32 begin = __shfl_sync(kFullWarp, sum - own, lane);
        return {first + lane, block - begin, true};
      }
      if (first + 32 >= matrices) return {};
      look_at(first + 32, __shfl_sync(kFullWarp, sum, 31));
    }
  }
};

// With a mask, which counts the rows of each matrix, the rows of all matrices are distributed among the blocks of a
// fixed grid. Such batches have room for many more rows than they hold, so with a block for each, most would start only
// to exit.
template <typename ArgumentsOf>
JITNORM_INLINE void process_counted_rows(ArgumentsOf arguments_of) {
  wait_for_inputs();
  BlockFinder<ArgumentsOf> finder{arguments_of, (UInt32)arguments_of(0).matrices};
  finder.look_at(0, 0);
  for (UInt32 block = row_block();; block += row_blocks()) {
    const FoundBlock found = finder.find(block);
    if (!found.is_there) return;
    process_rows(arguments_of(found.matrix), found.number);
    if constexpr (kMeetsOverRows) {
      end_exchanges();
    } else {
      __syncwarp();  // lanes look for the next rows together
    }
  }
}
