// The schedule of ops on independent items, the root of their sources: a loop.
#pragma once

#include "../common/process_item.h"

JITNORM_INLINE void process_items(const Arguments& a, Int64 first, Int64 last) {
  for (Int64 item = first; item < last; ++item) process_item(a, item);
}
