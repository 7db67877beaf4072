// One row set.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  process_rows(arguments_of(), first, last);
}
