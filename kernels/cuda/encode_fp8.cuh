// The encode stage of FP8 with one scale for the tensor, given, or for the row, found.
struct EncodeContext {
  UInt8* codes;
  float encode;  // codes are those of y * encode
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, CallScale call, float row_amax, bool is_writer) {
  const float scale = fp8_scale_of(a, row, call, row_amax, is_writer);
  return {a.codes + row_offset(row, a.extents, a.codes_strides), encode_scale_of(scale)};
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float) {
  CodeChunk codes;
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    codes.words[i] = encode_word(y + kCodesPerWord * i, context.encode);
  }
  store_codes(context.codes, index, codes);
}

JITNORM_INLINE void end_row(const EncodeContext&, int) {}
JITNORM_INLINE void write_padding_row(const Arguments&, Int64, int) {}
