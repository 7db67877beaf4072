// The optional arguments of FP4 encoding.
JITNORM_INLINE float global_scale_of(const Arguments& a) { return kHasGlobalScale ? *a.global_scale : 1.0f; }

// Where linear scales go: with both layouts asked for, `block_scale` is the swizzled one.
JITNORM_INLINE UInt8* linear_scales(const Arguments& a) {
  return kHasSwizzledScales ? a.block_scale_unswizzled : a.block_scale;
}
