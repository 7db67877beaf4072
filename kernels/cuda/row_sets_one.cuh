// One row set: all blocks share it.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  process_rows(arguments_of(), row_block());
}
