// How GPUs that write each other's memory wait for each other, and what a call prepares for the next.
#pragma once

#include "../common/workspace.h"
#include "row_sharing.cuh"

#ifdef JITNORM_REDUCES
// Data that other GPUs write and read bypasses the caches of a multiprocessor. Accesses of one element are atomic;
// 16-byte accesses need not be more than that.
JITNORM_INLINE uint4 load_shared(const uint4* at) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at)
               : "memory");
  return value;
}

JITNORM_INLINE UInt64 load_shared(const UInt64* at) {
  UInt64 value;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

JITNORM_INLINE void store_shared(uint4* at, uint4 value) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

JITNORM_INLINE void store_shared(UInt64* at, UInt64 value) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

JITNORM_INLINE UInt64 load_acquire(const UInt64* at) {
  UInt64 value;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

// What the thread has seen or stored comes before what it stores from here on, for all GPUs. __threadfence_system()
// would also order it with loads that follow.
JITNORM_INLINE void release_to_ranks() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

JITNORM_INLINE UInt64 nanoseconds() {
  UInt64 time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

JITNORM_INLINE bool has_failed(const Workspace& w) { return load_shared(&w.progress) & kFailed; }

// The arguments of a call over ranks, once its inputs are there. What never changes of the workspace is loaded while
// the previous kernel still runs. The progress goes through the caches: 1800 warps that asked the L2 cache for the same
// word kept 128 blocks of padding and the row between them waiting for 1.5 us.
template <typename ArgumentsOf>
JITNORM_INLINE Arguments begun(ArgumentsOf arguments_of) {
  Arguments a = arguments_of();
  a.slots = slots_of(workspace_of(a));
  wait_for_inputs();
  a.progress = workspace_of(a).progress;
  return a;
}

JITNORM_INLINE UInt64 epoch_of(const Arguments& a) { return calls_before(a.progress); }
JITNORM_INLINE bool had_failed(const Arguments& a) { return a.progress & kFailed; }

// A wait that ends at the workspace's deadline, or once another wait of the rank has failed.
struct Wait {
  UInt64 start = 0;
  UInt32 looks = 0;

  JITNORM_INLINE bool is_over(const Workspace& w) {
    constexpr UInt32 kLooksAtOnce = 16;  // at what takes longer to check than another poll
    if (++looks % kLooksAtOnce != 0) return false;
    if (has_failed(w)) return true;
    const UInt64 now = nanoseconds();
    if (start == 0) start = now;
    return now - start > w.deadline;
  }
};

// Reports the number of the call in which something failed to the host, for each rank.
JITNORM_INLINE void report(Workspace& w, UInt64* of_ranks, int rank, UInt64 epoch) {
  store_shared(&of_ranks[rank], epoch + 1);
  asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" ::"l"(&w.progress), "l"(kFailed) : "memory");
}

// What earlier calls used of the slots, loaded early, so that nothing waits for it.
struct UsedSlots {
  Int64 rows[kBuffers], bytes[kBuffers];

  JITNORM_INLINE static UsedSlots of(const Arguments& a) {
    const Workspace& w = workspace_of(a);
    UsedSlots used;
    JITNORM_UNROLL
    for (int i = 0; i < kBuffers; ++i) {
      used.rows[i] = w.used_rows[i];
      used.bytes[i] = w.used_bytes[i];
    }
    return used;
  }
};

// Prepares what the previous call used for another call: each of the first blocks does its part.
JITNORM_INLINE void clear_last(const Arguments& a, const UsedSlots& used, Int64 blocks) {
  if (had_failed(a)) return;
  const Slots& s = a.slots;
  const UInt64 before = epoch_of(a) + kBuffers - 1;
  const int buffer = (int)(before % kBuffers);
  const Int64 rows = buffer == 0 ? used.rows[0] : buffer == 1 ? used.rows[1] : used.rows[2];
  const Int64 bytes = buffer == 0 ? used.bytes[0] : buffer == 1 ? used.bytes[1] : used.bytes[2];
  const uint4 not_yet = {kNotYet, kNotYet, kNotYet, kNotYet};
#pragma unroll 1
  for (int p = 1; p < kRanks; ++p) {
#pragma unroll 1
    for (Int64 row = row_block(); row < rows; row += blocks) {
      UInt8* at = s.from_own[0] + row_bytes_offset(s, slot_number(s, before, (s.rank + p) % kRanks, row));
      for (Int64 i = (Int64)thread_of_cluster() * 16; i < bytes; i += kThreads * kBlocksPerRow * 16) {
        store_shared(reinterpret_cast<uint4*>(at + i), not_yet);
      }
    }
  }
}

// The last step of each block: adds to the progress, which it will not read again.
JITNORM_INLINE void end_block(const Arguments& a, Int64 sent_rows) {
  wait_for_inputs();                                 // a block without rows has not waited yet
  if constexpr (kWarpsPerRow == 1) __syncthreads();  // else its warps have met since they asked
  if (threadIdx.x != 0) return;
  Workspace& w = workspace_of(a);
  if (blockIdx.x == 0) {
    const UInt64 epoch = epoch_of(a);
    w.used_rows[epoch % kBuffers] = sent_rows;
    w.used_bytes[epoch % kBuffers] = kSentBytes;
  }
  const UInt64 progress = progress_of(blockIdx.x == 0, 1, gridDim.x);
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(&w.progress), "l"(progress) : "memory");
}

// One thread tells the other ranks that a step is finished for all rows.
JITNORM_INLINE void tell(const Workspace& w, Step step, UInt64 mark) {
#pragma unroll 1
  for (int p = 1; p < kRanks; ++p) {
    store_shared(step_of(w.from_own[p], step, w.rank), mark);
  }
}

// The same: what the thread has seen done, they will see, too.
JITNORM_INLINE void announce(const Workspace& w, Step step, UInt64 mark) {
  release_to_ranks();
  tell(w, step, mark);
}

// One thread waits until another rank has set a mark.
JITNORM_INLINE bool await_mark(Workspace& w, const UInt64* at, UInt64 mark, int rank, UInt64 epoch) {
  Wait wait;
  Arrival arrival;
  while ((arrival = arrival_of(load_acquire(at), mark)) == Arrival::kNotYet && !wait.is_over(w)) {
  }
  if (arrival == Arrival::kOther) report(w, w.status->disagreeing, rank, epoch);
  if (arrival == Arrival::kNotYet && !has_failed(w)) report(w, w.status->late, rank, epoch);
  return arrival == Arrival::kThere;
}

// One thread per rank waits until that rank has said so. All threads of the block take part, and all learn whether all
// other ranks have arrived.
JITNORM_INLINE bool await_others(Workspace& w, Step step, UInt64 mark, UInt64 epoch) {
  bool is_good = true;
  const int rank = threadIdx.x;
  if (rank < kRanks && rank != w.rank) {
    is_good = !has_failed(w) && await_mark(w, step_of(w.from_own[0], step, rank), mark, rank, epoch);
  }
  return __syncthreads_and(is_good);
}

#ifdef JITNORM_DIVIDES
// Waits until all ranks have begun the call: what others read and write of them is ready.
JITNORM_INLINE bool await_ready(const Arguments& a) {
  const UInt64 epoch = epoch_of(a);
  return await_others(workspace_of(a), Step::kReady, mark_of_divided(a, epoch), epoch);
}

// Tells the other ranks that a block has finished its rows, and waits for the same block of theirs: without a sum over
// ranks, all have as many. Few blocks have room for their marks beside the slots.
JITNORM_INLINE void finish_block(const Arguments& a, UInt64 mark) {
  const Slots& s = a.slots;
  Workspace& w = workspace_of(a);
  const UInt64 epoch = epoch_of(a);
  __syncthreads();  // all threads have stored
  if (threadIdx.x == 0 && !has_failed(w)) {
    release_to_ranks();
    const Int64 own = mark_offset(slot_number(s, epoch, s.rank, blockIdx.x));
#pragma unroll 1
    for (int p = 1; p < kRanks; ++p) store_shared(reinterpret_cast<UInt64*>(w.from_own[p] + own), mark);
  }
  const int rank = threadIdx.x;
  if (rank < kRanks && rank != s.rank && !has_failed(w)) {
    const UInt8* at = s.from_own[0] + mark_offset(slot_number(s, epoch, rank, blockIdx.x));
    await_mark(w, reinterpret_cast<const UInt64*>(at), mark, rank, epoch);
  }
  __syncthreads();  // all threads know the call before its end
}

// The last block to arrive here tells the other ranks that this rank has finished its rows, and waits for theirs.
JITNORM_INLINE void finish_together(Workspace& w, UInt64 mark, UInt64 epoch) {
  __shared__ bool is_last;
  __syncthreads();  // all threads have stored
  if (threadIdx.x == 0) {
    release_to_ranks();
    is_last = atomicAdd(&w.finished, 1ull) == gridDim.x - 1;
    if (is_last) {
      w.finished = 0;
      if (!has_failed(w)) announce(w, Step::kDone, mark);
    }
  }
  __syncthreads();
  if (is_last) await_others(w, Step::kDone, mark, epoch);
}
#endif
#endif
