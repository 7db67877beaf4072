// The encode stage of a plain norm: y rounded to the input's type.
struct EncodeContext {
  Input* row;
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, CallScale, float, bool) {
  return {a.out + row_offset(row, a.extents, a.out_strides)};
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float) {
  InputChunk chunk;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) round_to(y[i], chunk.elements[i]);
  store_chunk(context.row, index, chunk);
}

JITNORM_INLINE void end_row(const EncodeContext&, int) {}
JITNORM_INLINE void write_padding_row(const Arguments&, Int64, int) {}
