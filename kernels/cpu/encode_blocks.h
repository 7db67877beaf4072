// The encode stage with a scale for each block: NVFP4, MXFP4, MXFP8 and FP8 groups.
constexpr int kBlockWords = kBlockSize / kCodesPerWord;

JITNORM_INLINE UInt32 encode_block(const float* y, GlobalScale global, UInt8* to) {
  const BlockScale scale = choose_scale(y, row_max(y, kBlockSize), global);
  for (int i = 0; i < kBlockWords; ++i) {
    const UInt32 codes = (encode_word(y + kCodesPerWord * i, scale.encode) & scale.keep) | scale.fill;
    __builtin_memcpy(to + 4 * i, &codes, sizeof(codes));
  }
  return scale.stored;
}

JITNORM_INLINE void encode_row(const Arguments& a, Int64 row, const float* y) {
  UInt8* codes = a.codes + row_offset(row, a.extents, a.codes_strides);
  const float row_amax = kNeedsRowAmax ? row_max(y, kHiddenSize) : 0.0f;
  const GlobalScale global = prepare_global_scale(a, global_scale_of(a, row, row_amax, true));
  for (int k = 0; k < kScaleColumns; ++k) {
    store_scale(a, row, k, encode_block(y + k * kBlockSize, global, codes + k * kBlockWords * 4));
  }
  store_zero_scales(a, row, kScaleColumns, 0, 1);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row) { store_zero_scales(a, row, 0, 0, 1); }
