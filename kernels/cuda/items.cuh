// The schedule of ops on independent items, the root of their sources: a thread each.
#pragma once

#include "../common/process_item.h"
#include "dependent_launch.cuh"

JITNORM_INLINE void process_items(const Arguments& a) {
  wait_for_inputs();
  launch_dependents();
  const Int64 item = (Int64)blockIdx.x * kThreads + threadIdx.x;
  if (item < a.items) process_item(a, item);
}
