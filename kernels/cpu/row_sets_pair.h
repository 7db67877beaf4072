// Two row sets, one after the other.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  const Int64 border = visited_rows(arguments_of(false).rows);
  process_rows(arguments_of(false), first, last < border ? last : border);
  process_rows(arguments_of(true), first < border ? 0 : first - border, last - border);
}
