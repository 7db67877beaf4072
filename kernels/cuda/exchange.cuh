// What the threads of a row exchange. In a block, they store it in shared memory and meet at a barrier. The blocks of a
// cluster send it to each other, and each counts the bytes that arrive: at a barrier of the cluster, threads would wait
// until the whole GPU sees all that they have loaded and stored before, and then lose what the L1 cache has.
#pragma once

#include "../common/normalize.h"
#include "row_sharing.cuh"

// The sums of a row, those that follow, and its largest magnitudes.
enum class Exchange { kSums, kNextSums, kAmaxes };
constexpr int kExchanges = 3;

// Whether a row is summed, and whether it is summed twice.
#ifdef JITNORM_SUMS_FIRST
constexpr bool kSumsRows = true, kSumsTwice = kNormalizes;
#else
constexpr bool kSumsRows = kNormalizes, kSumsTwice = kCenters;
#endif

// Whether resident blocks store the sums of a row elsewhere than those of the last, which other threads may still read:
// another barrier of the row would come in between.
constexpr bool kAlternatesSums = kStaysResident && kSumsRows && !kSumsTwice && !kNeedsRowAmax;

// Whether the blocks of a cluster need something of each other, for one row after another if they stay resident.
constexpr bool kExchangesInCluster = kInClusters && (kSumsRows || kNeedsRowAmax);
constexpr bool kRepeatsExchanges = kExchangesInCluster && kStaysResident;

JITNORM_INLINE bool takes_place(Exchange exchange) {
  if (exchange == Exchange::kAmaxes) return kNeedsRowAmax;
  return exchange == Exchange::kSums ? kSumsRows : kSumsTwice || kAlternatesSums;
}

// Sums that warps send, also of groups past the row: who has received all of an exchange knows that no warp reads the
// one before.
constexpr int kSentSums = kWarpsPerRow * kChunksPerLane;

// Bytes of these.
constexpr int kBytesOfSum = kSentSums * (int)sizeof(float);

// Bytes that a block receives in an exchange about rows that are encoded.
JITNORM_INLINE int bytes_of(Exchange exchange) {
#ifdef JITNORM_BLOCKS_CROSS_WARPS
  constexpr int kAmaxes = kWarpsPerRow + kChunks;
#else
  constexpr int kAmaxes = kWarpsPerRow;
#endif
  return kRowsAtOnce * (exchange == Exchange::kAmaxes ? kAmaxes * (int)sizeof(float) : kBytesOfSum);
}

// What counts the bytes.
JITNORM_INLINE UInt64* arrivals_of(Exchange exchange) {
  __shared__ UInt64 arrivals[kExchanges];
  return arrivals + (int)exchange;
}

// Lets one thread expect an exchange.
JITNORM_INLINE void expect(Exchange exchange, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrivals_of(exchange))),
               "r"(bytes)
               : "memory");
}

// The same for the first time.
JITNORM_INLINE void begin_exchange(Exchange exchange, int bytes) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrivals_of(exchange))) : "memory");
  expect(exchange, bytes);
}

// Lets one thread begin exchanges, before any block sends something.
template <typename Begin>
JITNORM_INLINE void begin_exchanges(Begin begin) {
  if (threadIdx.x == 0) {
    begin();
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Expects the exchanges of the next rows.
JITNORM_INLINE void expect_exchanges() {
  if constexpr (!kExchangesInCluster) return;
  begin_exchanges([] {
    JITNORM_UNROLL
    for (int i = 0; i < kExchanges; ++i) {
      if (takes_place((Exchange)i)) begin_exchange((Exchange)i, bytes_of((Exchange)i));
    }
  });
}

// Waits until all blocks of the cluster expect exchanges: nothing may be sent before. Once the row is requested, it
// would be the row that waits: few rows would take 1.01 to 1.02 times as long.
JITNORM_INLINE void await_blocks() {
  if constexpr (kExchangesInCluster) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Ends the exchanges of rows: the next take the same shared memory, and threads see what all have stored for these
// rows.
JITNORM_INLINE void end_exchanges() {
  if constexpr (!kExchangesInCluster) {
    row_barrier();
    return;
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x > 0) return;
  JITNORM_UNROLL
  for (int i = 0; i < kExchanges; ++i) {
    if (!takes_place((Exchange)i)) continue;
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(arrivals_of((Exchange)i))) : "memory");
  }
}

// Sends a value to where a block has the slot.
JITNORM_INLINE void send(Exchange exchange, const float* slot, float value, UInt32 block) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                   address_in_block(slot, block)),
               "f"(value), "r"(address_in_block(arrivals_of(exchange), block))
               : "memory");
}

// Shares a value with all threads of the row. It is known to several lanes, numbered from 0 on, each of which sends it
// to one block.
JITNORM_INLINE void share(Exchange exchange, float* slot, float value, int lane) {
  if constexpr (kExchangesInCluster) {
    if (lane < kBlocksPerRow) send(exchange, slot, value, lane);
  } else {
    if (lane == 0) *slot = value;
  }
}

// The threads of a row meet: each has then what all have shared. Exchanges that repeat have a parity, first 0.
JITNORM_INLINE void meet(Exchange exchange, UInt32 parity = 0) {
  if constexpr (!kExchangesInCluster) {
    row_barrier();
    return;
  }
  asm volatile(
      "{\n"
      ".reg .pred is_complete;\n"
      "again%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 is_complete, [%0], %1;\n"
      "@!is_complete bra again%=;\n"
      "}" ::"r"(shared_address(arrivals_of(exchange))),
      "r"(parity)
      : "memory");
}
