// Inserts values into the pages of a cache.
#pragma once

#include "../common/pages.h"
#include "encode.h"

#ifdef JITNORM_PAGES
// Copies rows of values to their places.
JITNORM_INLINE void insert_values(const Arguments& a, Int64 first, Int64 last) {
  constexpr int kRowBytes = kHiddenSize * sizeof(Input);
  for (Int64 row = first; row < last; ++row) {
    const Input* from = a.values + row_offset(row, a.extents, a.values_strides);
    const Place place = place_of(a, a.value_cache, row);
    if constexpr (kKeepsHeads) {
      Output* to = a.values_out + row_offset(row, a.extents, a.values_out_strides);
      if (to != from) __builtin_memcpy(to, from, kRowBytes);
    }
    if (!place.is_there) continue;
    if constexpr (kHasEncodedPages) {
      for (int t = 0; t < kRowTiles; ++t) {
        Tile tile;
        load_tile(from, kHiddenSize, t, tile);
        store_in_page(tile, t, a.value_cache, place);
      }
    } else {
      __builtin_memcpy(a.value_cache.pages + place.offset, from, kRowBytes);
    }
  }
}
#endif
