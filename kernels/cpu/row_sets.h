// The schedule of row-wise kernels, the root of their sources: one row set after another, a part of the rows that a
// launch visits.
#pragma once

#include "rows.h"

// arguments_of() gives the Arguments of a row set: of the only one, of the first or the second, or of a matrix.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  if constexpr (kRowSets == RowSets::kPair) {
    const Int64 border = visited_rows(arguments_of(false).rows);
    process_rows(arguments_of(false), first, last < border ? last : border);
    process_rows(arguments_of(true), first < border ? 0 : first - border, last - border);
  } else if constexpr (kRowSets == RowSets::kMatrices) {
    const Int64 rows = visited_rows(arguments_of(0).rows);
    while (first < last) {
      const Int64 matrix = first / rows, begin = matrix * rows, end = begin + rows;
      process_rows(arguments_of(matrix), first - begin, (last < end ? last : end) - begin);
      first = end;
    }
  } else {
    process_rows(arguments_of(), first, last);
  }
}
