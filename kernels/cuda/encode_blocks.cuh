struct EncodeContext {
  const Arguments* arguments;
  Int64 row;
  UInt8* codes;
  GlobalScale global;
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, CallScale call, float row_amax, bool is_writer) {
  const GlobalScale global = global_scale_of(a, row, call, row_amax, is_writer);
  return {&a, row, a.codes + row_offset(row, a.extents, a.codes_strides), global};
}

// Encodes any block; the bits of its scale.
JITNORM_INLINE UInt32 encode_block(CodeChunk& codes, const float (&y)[kChunkSize], float amax, GlobalScale global) {
  const BlockScale scale = choose_scale(y, amax, global);
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    codes.words[i] = (encode_word(y + kCodesPerWord * i, scale.encode) & scale.keep) | scale.fill;
  }
  return scale.stored;
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float amax) {
  const float block_amax = butterfly_max<kLanesPerBlock>(amax);
  CodeChunk codes;
  UInt32 stored;
  const OrdinaryBlock ordinary = ordinary_block(block_amax, context.global);
  if (is_ordinary(block_amax, ordinary)) {
    stored = encode_ordinary_block(codes, y, ordinary);
  } else {
    stored = encode_block(codes, y, block_amax, context.global);
  }
  if (index >= kChunks) return;
  store_codes(context.codes, index, codes);
  if (index % kLanesPerBlock == 0) store_scale(*context.arguments, context.row, index / kLanesPerBlock, stored);
}

JITNORM_INLINE void end_row(const EncodeContext& context, int thread) {
  store_zero_scales(*context.arguments, context.row, kScaleColumns, thread, kThreadsPerRow);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row, int thread) {
  store_zero_scales(a, row, 0, thread, kThreadsPerRow);
}
