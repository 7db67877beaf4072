// Where the slots are into which ranks send rows to each other.
#pragma once

#include "configuration.h"

#ifdef JITNORM_REDUCES
constexpr int kMaxRanks = 8, kBuffers = 3;

struct Slots {
  Int64 rank;                  // the own one
  Int64 rows;                  // of a slot
  Int64 row_bytes;             // from one of them to the next
  Int64 first;                 // where in a window the rows of slots begin
  UInt8* from_own[kMaxRanks];  // the windows of ranks, from the own one on
};
#endif
