// Inserts values into the pages of a cache.
#pragma once

#include "../common/pages.h"
#include "encode.cuh"

#ifdef JITNORM_PAGES
// Copies block `block` of the rows of values to their places.
JITNORM_INLINE void insert_values(const Arguments& a, Int64 block) {
  static_assert(kRowsAtOnce == 1, "threads have a head each");
  const Int64 row = block * kRowsPerBlock + threadIdx.x / kThreadsPerRow;
  const bool is_there = row < a.rows;
  const Int64 at = is_there ? row : 0;
  const int first = is_there ? thread_of_row() : kPastRow;
  wait_for_inputs();
  InputChunk chunks[kChunksPerLane];
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) {
    load_chunk(chunks[j], a.values + row_offset(at, a.extents, a.values_strides), first + j * kThreadsPerRow);
  }
  const Place place = place_of(a, a.value_cache, at);
  launch_dependents();
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) {
    const int index = first + j * kThreadsPerRow, index_there = place.is_there ? index : kPastRow;
    if constexpr (kHasEncodedPages) {
      float y[kChunkSize];
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) y[i] = value_of(chunks[j], i);
      store_codes_alone((UInt8*)a.value_cache.pages + place.offset, index_there, codes_of(y, place.factor));
    } else {
      store_chunk((Output*)a.value_cache.pages + place.offset, index_there, chunks[j]);
    }
    if constexpr (kKeepsHeads) {
      store_chunk(a.values_out + row_offset(at, a.extents, a.values_out_strides), index, chunks[j]);
    }
  }
}
#endif
