// The encode stage with a scale for each block: NVFP4, MXFP4, MXFP8 and FP8 groups.
constexpr int kBlockBytes = kBlockSize * 4 / kCodesPerWord;
// Blocks whose scales are found side by side.
constexpr int kBlocksAtOnce = 32;

JITNORM_INLINE void encode_some_blocks(const Arguments& a, Int64 row, int first, int count, const float* y,
                                       GlobalScale global, UInt8* to) {
  UInt32 stored[kBlocksAtOnce], keep[kBlocksAtOnce], fill[kBlocksAtOnce];
  float amax[kBlocksAtOnce], encode[kBlocksAtOnce];
  // Opaque, so that GCC vectorizes the maximum of a block and not the loop over blocks (NVFP4: 18.3 ms to 15.4).
  for (int k = 0; k < count; ++k) amax[k] = opaque(row_max(y + k * kBlockSize, kBlockSize));
  for (int k = 0; k < count; ++k) {
    const BlockScale scale = choose_scale(y + k * kBlockSize, amax[k], global);
    stored[k] = scale.stored;
    encode[k] = scale.encode;
    keep[k] = scale.keep;
    fill[k] = scale.fill;
  }
  // Of 16 bits, so that those of a block of 16 fill the vectors of AVX2.
  UInt16 codes[kBlocksAtOnce * kBlockSize];
  for (int k = 0; k < count; ++k) {
    for (int i = k * kBlockSize; i < (k + 1) * kBlockSize; ++i) codes[i] = (UInt16)encode_code(y[i], encode[k]);
  }
  store_codes(codes, count * kBlockSize, to);
  for (int k = 0; k < count; ++k) {
    if (keep[k] == 0) __builtin_memset(to + k * kBlockBytes, (int)fill[k], kBlockBytes);
  }
  for (int k = 0; k < count; ++k) store_scale(a, row, first + k, stored[k]);
}

JITNORM_INLINE void encode_row(const Arguments& a, Int64 row, const float* y) {
  UInt8* codes = a.codes + row_offset(row, a.extents, a.codes_strides);
  const float row_amax = kNeedsRowAmax ? row_max(y, kHiddenSize) : 0.0f;
  const GlobalScale global = prepare_global_scale(a, global_scale_of(a, row, row_amax, true));
  for (int k = 0; k < kScaleColumns; k += kBlocksAtOnce) {
    const int count = kScaleColumns - k < kBlocksAtOnce ? kScaleColumns - k : kBlocksAtOnce;
    encode_some_blocks(a, row, k, count, y + k * kBlockSize, global, codes + k * kBlockBytes);
  }
  store_zero_scales(a, row, kScaleColumns, 0, 1);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row) { store_zero_scales(a, row, 0, 0, 1); }
