// A row set for each matrix of a batch, one after another.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  const Int64 rows = visited_rows(arguments_of(0).rows);
  while (first < last) {
    const Int64 matrix = first / rows, begin = matrix * rows, end = begin + rows;
    process_rows(arguments_of(matrix), first - begin, (last < end ? last : end) - begin);
    first = end;
  }
}
