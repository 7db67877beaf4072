// Two row sets: the first blocks have one, the others the other, none both.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  const Int64 first_blocks = blocks_of(arguments_of(false).rows);
  const bool second = row_block() >= first_blocks;
  process_rows(arguments_of(second), row_block() - (second ? first_blocks : 0));
}
