// The first of two launches that find the largest magnitude of a tensor, in parts of consecutive rows.
#pragma once

#include "rows.h"

#ifdef JITNORM_TENSOR_AMAX
// Finds the largest magnitudes of parts `first` to `last`; that of the last rows also clears those without rows.
template <typename ArgumentsOf>
JITNORM_INLINE void process_amax(ArgumentsOf arguments_of, Int64 first, Int64 last) {
#ifdef JITNORM_TURNS
  const Arguments a = arguments_of(0);
#else
  const Arguments a = arguments_of();
#endif
  const Int64 full = a.rows / kRowsPerPart + 1, parts = full < kAmaxParts ? full : kAmaxParts;
  for (Int64 part = first; part < last; ++part) {
    const Int64 begin = a.rows * part / parts, end = a.rows * (part + 1) / parts;
    a.amax[part] = 0.0f;
#ifdef JITNORM_TURNS
    for (Int64 row = begin; row < end; ++row) {
      Arguments own = arguments_of(row % kWeightRows);
      own.amax += part;
      process_rows(own, row, row + 1);
    }
#else
    Arguments own = a;
    own.amax += part;
    process_rows(own, begin, end);
#endif
  }
  for (Int64 part = parts; last == parts && part < kAmaxParts; ++part) a.amax[part] = 0.0f;
}
#endif
