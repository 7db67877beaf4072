// y is kept beside its codes, rounded to the input's type.
JITNORM_INLINE void store_norm(const Arguments& a, Int64 row, int index, const float (&y)[kChunkSize]) {
  InputChunk chunk;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) round_to(y[i], chunk.elements[i]);
  store_chunk(a.y_out + row_offset(row, a.extents, a.y_out_strides), index, chunk);
}
