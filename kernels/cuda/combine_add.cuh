// The combine stage with a residual: a row is the float32 sum, which may also be stored, rounded to the input's type.
typedef Chunk<float, 16> HeldChunk;

struct RowSource {
  const Input* input;
  const Input* residual;
  Input* sum;
};

JITNORM_INLINE RowSource source_of(const Arguments& a, Int64 row) {
  return {a.input + row_offset(row, a.extents, a.input_strides),
          a.residual + row_offset(row, a.extents, a.residual_strides),
          a.residual_out + row_offset(row, a.extents, a.residual_out_strides)};
}

JITNORM_INLINE void load_held(HeldChunk& h, const RowSource& source, int index) {
  InputChunk x, r;
  load_chunk(x, source.input, index);
  load_chunk(r, source.residual, index);
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) h.elements[i] = add_rn(value_of(x, i), value_of(r, i));
}

// What a row is loaded from, and the same out of shared memory.
template <typename Visit>
JITNORM_INLINE void visit_loaded(const RowSource& source, Visit visit) {
  visit(source.input);
  visit(source.residual);
}
JITNORM_INLINE RowSource staged_source(const RowSource& source, const Input* staged) {
  return {staged, staged + kHiddenSize, source.sum};
}

// Only once nobody will load the residual again: the sum may take its place.
JITNORM_INLINE void store_sum(const RowSource& source, const HeldChunk& h, int index) {
  if constexpr (!kStoresSum) return;
  InputChunk sum;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) round_to(h.elements[i], sum.elements[i]);
  store_chunk(source.sum, index, sum);
}
