// Scales to memory, in one layout or two.
// With both layouts asked for, `block_scale` is the swizzled one.
JITNORM_INLINE Scale* linear_scales(const Arguments& a) {
  return kHasSwizzledScales ? a.block_scale_unswizzled : a.block_scale;
}

JITNORM_INLINE void assign_bits(UInt8& scale, UInt32 bits) { scale = (UInt8)bits; }
JITNORM_INLINE void assign_bits(float& scale, UInt32 bits) { scale = float_of(bits); }

JITNORM_INLINE void store_scale(const Arguments& a, Int64 row, int column, UInt32 bits) {
  if (kHasSwizzledScales) assign_bits(a.block_scale[swizzled_offset(row, column)], bits);
  if (kHasLinearScales) assign_bits(linear_scales(a)[linear_offset(row, column, a.rows)], bits);
}

// Zeroes what pads row `row`: the columns from `first` on that `thread` of `threads` is in charge of.
JITNORM_INLINE void store_zero_scales(const Arguments& a, Int64 row, int first, int thread, int threads) {
  for (int k = first + thread; k < kPaddedScaleColumns; k += threads) {
    if (kHasSwizzledScales) a.block_scale[swizzled_offset(row, k)] = Scale{};
    if (kHasColumnMajorScales) a.block_scale[linear_offset(row, k, a.rows)] = Scale{};
  }
}
