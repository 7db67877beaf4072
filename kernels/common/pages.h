// The place of a token's heads in the pages of a cache.
#pragma once

#include "rotation.h"

#ifdef JITNORM_PAGES
// The place of a row of keys or values in the pages. It has no pointer to these: once a pointer is selected by a
// condition, NVRTC no longer sees that it points to global memory.
struct Place {
  Int64 offset;
  float factor;  // codes are those of elements times it
  bool is_there;
};

// The reciprocal of the scale of a head's codes.
JITNORM_INLINE float factor_of_head(const Cache& cache, Int64 head) {
  const Int64 last = cache.scales_extents[0] - 1;
  return last < 0 ? 1.0f : reciprocal_rn(cache.scales[(head < last ? head : last) * cache.scales_strides[0]]);
}

// Without branches, in which a warp could diverge.
JITNORM_INLINE Place place_of(const Arguments& a, const Cache& cache, Int64 row) {
  const Int64 token = token_of_row(a, row), head = row - token * a.heads;
  const Int64 slot = token < a.slots_extents[0] ? (Int64)a.slots[token * a.slots_strides[0]] : -1;
  const Int64 page_size = cache.pages_extents[1], page = slot / (page_size == 0 ? 1 : page_size);
  const Int64* strides = cache.pages_strides;
  const Int64 offset = page * strides[0] + (slot - page * page_size) * strides[1] + head * strides[2];
  const bool is_there = slot >= 0 && page_size > 0 && page < cache.pages_extents[0] && head < cache.pages_extents[2];
  return {is_there ? offset : 0, kHasEncodedPages ? factor_of_head(cache, head) : 1.0f, is_there};
}
#endif
