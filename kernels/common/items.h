// The schedule of ops on independent items: on GPUs, a thread or a block of threads for each; on the host, a loop.
// process_item(item) processes one.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

// So many neighbouring items.
template <int kCount>
struct Columns {};

#ifdef __CUDACC__
template <typename ProcessItem>
JITNORM_INLINE void process_items(Int64 items, ProcessItem process_item) {
  wait_for_inputs();
  launch_dependents();
  const Int64 item = ((Int64)blockIdx.x * kThreads + threadIdx.x) / kThreadsPerItem;
  if (item < items) process_item(item);
}
#else
template <typename ProcessItem>
JITNORM_INLINE void process_items(Int64, Int64 first, Int64 last, ProcessItem process_item) {
  for (Int64 item = first; item < last; ++item) process_item(item);
}
#endif
