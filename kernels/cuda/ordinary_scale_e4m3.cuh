// The scale of a block in E4M3, if the block is ordinary; if not, amax * encode is not, either: a scale of zero makes
// encode NaN, and so does a NaN; what quick_reciprocal cannot do becomes zero or NaN.
JITNORM_INLINE OrdinaryScale ordinary_scale_of(float amax, GlobalScale global) {
  const UInt32 code = encode_e4m3(mul_rn(amax, global.reciprocal_max));
  float decode = mul_rn(float_of(code << 20), 0x1p120f);
  if (kHasGlobalScale) decode = code < 0x80u ? mul_rn(decode, global.inverse) : 0.0f;
  return {code, decode, quick_reciprocal(decode)};
}
