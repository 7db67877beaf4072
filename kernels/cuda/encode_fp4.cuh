// The encode stage of FP4: a block scale from the block's largest magnitude, codes packed two a byte.
constexpr int kLanesPerBlock = kBlockSize / kChunkSize;
constexpr int kCodeBytes = kChunkSize / 2;
static_assert(kBlockSize % kChunkSize == 0 && kHiddenSize % kBlockSize == 0, "a block is whole chunks");

struct EncodeContext {
  const Arguments& arguments;
  Int64 row;
  UInt8* codes;
  GlobalScale global;
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row) {
  return {a, row, a.y_fp4 + row_offset(row, a.extents, a.y_fp4_strides), prepare_global_scale(global_scale_of(a))};
}

JITNORM_INLINE void store_scale(const Arguments& a, Int64 row, int column, UInt32 byte) {
  if (kHasSwizzledScales) a.block_scale[swizzled_offset(row, column)] = (UInt8)byte;
  if (kHasLinearScales) linear_scales(a)[linear_offset(row, column)] = (UInt8)byte;
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize]) {
  float amax = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) amax = max_magnitude(amax, y[i]);
  JITNORM_UNROLL
  for (int mask = 1; mask < kLanesPerBlock; mask *= 2) {
    amax = max_magnitude(amax, __shfl_xor_sync(kFullWarp, amax, mask));
  }
  const BlockScale scale = scale_of(amax, context.global);
  union alignas(8) {
    UInt32 words[kCodeBytes / 4];
    typename Access<kYFp4AccessBytes>::Type accesses[kCodeBytes / kYFp4AccessBytes];
  } codes;
  JITNORM_UNROLL
  for (int i = 0; i < kCodeBytes / 4; ++i) {
    float scaled[8];
    JITNORM_UNROLL
    for (int j = 0; j < 8; ++j) scaled[j] = mul_rn(y[8 * i + j], scale.encode);
    codes.words[i] = (encode_e2m1x8(scaled) & scale.keep) | scale.fill;
  }
  if (index >= kChunks) return;
  copy_words(context.codes + index * kCodeBytes, codes.accesses);
  if (index % kLanesPerBlock == 0) store_scale(context.arguments, context.row, index / kLanesPerBlock, scale.byte);
}

JITNORM_INLINE void write_zero_scales(const Arguments& a, Int64 row, int first, int thread) {
  for (int k = first + thread; k < kPaddedScaleColumns; k += kThreadsPerRow) a.block_scale[swizzled_offset(row, k)] = 0;
}

// The swizzled layout's padding: columns up to a multiple of 4, rows up to a multiple of 128.
JITNORM_INLINE void end_row(const EncodeContext& context, int thread) {
  if (kHasSwizzledScales) write_zero_scales(context.arguments, context.row, kScaleColumns, thread);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row, int thread) {
  if (kHasSwizzledScales) write_zero_scales(a, row, 0, thread);
}
