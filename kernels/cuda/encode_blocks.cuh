struct EncodeContext {
  const Arguments* arguments;
  Int64 row;
  UInt8* codes;
  GlobalScale global;
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, float row_amax, bool is_writer) {
  const float global_scale = global_scale_of(a, row, row_amax, is_writer);
  return {&a, row, a.codes + row_offset(row, a.extents, a.codes_strides), prepare_global_scale(a, global_scale)};
}

template <bool kIsBounded>
JITNORM_INLINE void encode_words(CodeChunk& codes, const float (&y)[kChunkSize], const BlockScale& scale) {
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    codes.words[i] = (encode_word<kIsBounded>(y + kCodesPerWord * i, scale.encode) & scale.keep) | scale.fill;
  }
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float amax) {
  const float block_amax = butterfly_max<kLanesPerBlock>(amax);
  const BlockScale scale = choose_scale(y, block_amax, context.global);
  CodeChunk codes;
  if (kWordBound > 0.0f && mul_rn(block_amax, scale.encode) < kWordBound) {
    encode_words<true>(codes, y, scale);
  } else {
    encode_words<false>(codes, y, scale);
  }
  if (index >= kChunks) return;
  store_codes(context.codes, index, codes);
  if (index % kLanesPerBlock == 0) store_scale(*context.arguments, context.row, index / kLanesPerBlock, scale.stored);
}

JITNORM_INLINE void end_row(const EncodeContext& context, int thread) {
  store_zero_scales(*context.arguments, context.row, kScaleColumns, thread, kThreadsPerRow);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row, int thread) {
  store_zero_scales(a, row, 0, thread, kThreadsPerRow);
}
