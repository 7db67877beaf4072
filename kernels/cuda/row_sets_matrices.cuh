// A row set for each matrix of a batch; a block has rows of one matrix.
template <typename ArgumentsOf>
JITNORM_INLINE void process_row_sets(ArgumentsOf arguments_of) {
  const UInt32 blocks = (UInt32)blocks_of(arguments_of(0).rows);
  const UInt32 matrix = row_block() / blocks;
  process_rows(arguments_of(matrix), row_block() - matrix * blocks);
}
