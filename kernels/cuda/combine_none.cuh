// The combine stage without a residual: a row is what is loaded, held as it is.
typedef InputChunk HeldChunk;

struct RowSource {
  const Input* input;
};

JITNORM_INLINE RowSource source_of(const Arguments& a, Int64 row) {
  return {a.input + row_offset(row, a.extents, a.input_strides)};
}

JITNORM_INLINE void load_held(HeldChunk& h, const RowSource& source, int index) { load_chunk(h, source.input, index); }

JITNORM_INLINE void store_sum(const RowSource&, const HeldChunk&, int) {}
