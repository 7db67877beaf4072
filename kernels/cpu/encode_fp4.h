// The encode stage of FP4: a block scale from the block's largest magnitude, codes packed two a byte.
JITNORM_INLINE void store_scale(const Arguments& a, Int64 row, int column, UInt32 byte) {
  if (kHasSwizzledScales) a.block_scale[swizzled_offset(row, column)] = (UInt8)byte;
  if (kHasLinearScales) linear_scales(a)[linear_offset(row, column)] = (UInt8)byte;
}

JITNORM_INLINE UInt32 encode_block(const Input* from, const Weight* weight, float rstd, GlobalScale global, UInt8* to) {
  float y[kBlockSize];
  for (int i = 0; i < kBlockSize; ++i) y[i] = normalize(to_float(from[i]), rstd, to_float(weight[i]));
  float amax = 0.0f;
  for (int i = 0; i < kBlockSize; ++i) amax = max_magnitude(amax, y[i]);
  const BlockScale scale = scale_of(amax, global);
  for (int i = 0; i < kBlockSize; ++i) y[i] = mul_rn(y[i], scale.encode);
  for (int i = 0; i < kBlockSize / 8; ++i) {
    const UInt32 codes = (encode_e2m1x8(y + 8 * i) & scale.keep) | scale.fill;
    __builtin_memcpy(to + 4 * i, &codes, sizeof(codes));
  }
  return scale.byte;
}

JITNORM_INLINE void write_zero_scales(const Arguments& a, Int64 row, int first) {
  for (int k = first; k < kPaddedScaleColumns; ++k) a.block_scale[swizzled_offset(row, k)] = 0;
}

JITNORM_INLINE void encode_row(const Arguments& a, Int64 row, const Input* from, float rstd) {
  UInt8* codes = a.y_fp4 + row_offset(row, a.extents, a.y_fp4_strides);
  const GlobalScale global = prepare_global_scale(global_scale_of(a));
  for (int k = 0; k < kScaleColumns; ++k) {
    const int begin = k * kBlockSize;
    store_scale(a, row, k, encode_block(from + begin, a.weight + begin, rstd, global, codes + begin / 2));
  }
  if (kHasSwizzledScales) write_zero_scales(a, row, kScaleColumns);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row) {
  if (kHasSwizzledScales) write_zero_scales(a, row, 0);
}
