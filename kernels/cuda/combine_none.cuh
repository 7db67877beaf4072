// The combine stage without a residual: a row is what is loaded, held as it is.
typedef InputChunk HeldChunk;

struct RowSource {
  const Input* input;
};

JITNORM_INLINE RowSource source_of(const Arguments& a, Int64 row) {
  return {a.input + row_offset(row, a.extents, a.input_strides)};
}

// Rows of codes may be longer than those of the input; a chunk past a row is zero.
JITNORM_INLINE void load_held(HeldChunk& h, const RowSource& source, int index) {
  const bool is_padding = kInputSize < kHiddenSize && index >= kInputSize / kChunkSize;
  load_chunk(h, source.input, is_padding ? kChunks : index);
}

// What a row is loaded from, and the same out of shared memory.
template <typename Visit>
JITNORM_INLINE void visit_loaded(const RowSource& source, Visit visit) {
  visit(source.input);
}
JITNORM_INLINE RowSource staged_source(const RowSource&, const Input* staged) { return {staged}; }

JITNORM_INLINE void store_sum(const RowSource&, const HeldChunk&, int) {}
